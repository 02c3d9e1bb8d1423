"""What a stretch of the input contributes to what an LSTM says: contextual decomposition."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from ..signals import DIRECTIONS, VERSION
from .decomposed_call import Heard, hear
from .decomposed_lstm import Parts, decompose
from .find import choose_one
from .phrases import Phrases, phrases_of
from .rebuild import ParityError, uncast

LARGEST = 2**32
"""Bytes that a result may take."""
VALUES = 2**24
"""Of all steps of the phrases that are decomposed side by side."""


def contextual_decomposition(
    model: nn.Module,
    inputs: Any,
    *,
    module: str | None = None,
    phrase: slice | Sequence[tuple[int, int]] | None = None,
    readout: str | nn.Linear | None = None,
    biases: Literal["phrase", "rest"] = "phrase",
    layer: int | None = None,
    at: int | Literal["last"] | None = None,
    inputs_kwargs: Mapping[str, Any] | None = None,
    lengths: Any = None,
    tolerance: float = 1e-4,
) -> xr.Dataset:
    """Split what an LSTM shows into what a phrase of the input brings about and all the rest.

    At every step `h = relevant + irrelevant`, and the same for `c`: relevant is what the phrase contributes by itself
    (with the biases), irrelevant what the rest of the input contributes, alone or together with the phrase. Where a
    sum goes into a squasher, each term gets the average of what it adds over the orders in which the sum can be built
    up (its Shapley value), with the bias always first:

        L(a) = [s(a + bias) - s(bias) + s(a + b + bias) - s(b + bias)] / 2,    L(bias) = s(bias)

    for the sigmoid or tanh s, the relevant part a and the irrelevant part b of a gate's pre-activation; there is no
    bias where c goes through tanh. Products are split term by term: a term is relevant if it holds a relevant factor
    and no irrelevant one. The output gate is not split. Initial states are irrelevant.

    What is written by the biases alone, the product of their parts of input gate and candidate, is relevant at the
    steps of the phrase and irrelevant at all others, as in the paper. With `biases="rest"` it is always irrelevant:
    then steps of zero input contribute exactly nothing, and relevant is what the phrase's input brings about.

    In a stack the two parts of a layer's states are the parts of the next layer's input. Both directions have the same
    phrases, on the input's time axis.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with an `nn.LSTM` inside (or a `Recurrent` of `LSTMCell`), called once. It runs once, in
        `eval()`; afterwards it is as before.
    inputs
        What the model is called with: a tuple holds its arguments, anything else is its only one.
    module
        Path of the LSTM; may be left out where there is one recurrent module.
    phrase
        `slice(2, 5)` for the steps 2, 3 and 4 as one phrase, a list of `(start, stop)` for several; by default every
        step is a phrase by itself.
    readout
        A linear layer that reads the LSTM's last layer, by its path in the model or itself. By default the one
        `nn.Linear` of the model that was seen to read just these states, if there is one.
    biases
        To which part the biases' product belongs on the steps of the phrase (see above); elsewhere it is irrelevant.
    layer
        Which layer's states are given; the last by default, which is also what a readout reads.
    at
        Keep all steps (None), the step of that number, or the `"last"` of each sequence; the others are never stored.
    inputs_kwargs
        Named arguments of the call.
    lengths
        Real steps of each sequence, (sequence,), where a batch is padded without being packed.
    tolerance
        Largest difference allowed between the two parts' sum and the model's own states, relative to the largest.
        Half-precision models get 0.05 (bfloat16) or 0.01 (float16) at least.

    Returns
    -------
    Dataset
        float64, NaN in padding; without `time` where `at` names a step.

        - `hidden_relevant`, `hidden_irrelevant` (phrase, direction, sequence, time, unit or projection).
        - With a readout `output_relevant`, `output_irrelevant` (phrase, sequence, time, output): `W` times the two;
          with `output_bias` (output) they add up to the readout's output.

        Coordinates `start` and `stop` (phrase). Attributes: `parity`, the largest difference between the sum and the
        model's own states relative to the largest state; `readout`, the path of what was used, and the parameters.

    Raises
    ------
    TypeError
        If the module is no LSTM that is called on whole sequences.
    ValueError
        If it was not called once, or phrases, readout or layer do not fit.
    ParityError
        If the sum is not what the model computed.

    References
    ----------
    W. J. Murdoch, P. J. Liu, B. Yu (2018). Beyond word importance: contextual decomposition to extract interactions
    from LSTMs. ICLR. arXiv 1801.05453.

    Examples
    --------
    A phrase of all steps leaves nothing to the rest.

    >>> lstm = nn.LSTM(2, 3)
    >>> found = contextual_decomposition(lstm, torch.ones(4, 1, 2), phrase=slice(0, 4))
    >>> float(abs(found.hidden_irrelevant).max()), float(abs(found.hidden_relevant).max()) > 0
    (0.0, True)
    """
    path, part = choose_one(model, module)
    if not isinstance(tolerance, Real) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number from 0 on; {tolerance!r} came. Leave it out.")
    heard = hear(model, path, part, inputs, inputs_kwargs, readout, lengths)
    place = chosen_layer(layer, len(heard.cells))
    if biases not in ("phrase", "rest"):
        raise ValueError(f"biases must be 'phrase' or 'rest'; {biases!r} came.")
    phrases, kept = phrases_of(phrase, heard.steps), kept_steps(at, heard)
    with torch.inference_mode(False), torch.no_grad(), uncast(torch.device("cpu")):
        parts, error = all_phrases(heard, phrases, place, kept, credit=biases == "phrase")
    if error != error:
        raise ValueError(
            f"input, weights and states of {path!r} must be finite; some are NaN or infinite. Look at the input first."
        )
    tolerance = max(tolerance, heard.coarse)
    if not error <= tolerance:
        raise ParityError(
            f"the parts must add up to the states of {path!r} within {tolerance:g} of the largest; in layer {place} "
            f"they are {error:.3g} off. The module computes something else than torch's LSTM."
        )
    result = labelled(heard, phrases, parts, place, kept, single=at is not None)
    attrs = {
        "module": path,
        "cell": "LSTMCell",
        "layer": place,
        "at": "all" if at is None else str(at),
        "biases": biases,
    }
    attrs |= {"readout": heard.readout_name, "parity": error, "tolerance": tolerance, "gatescope_version": VERSION}
    return result.assign_attrs(attrs)


def chosen_layer(layer: int | None, depth: int) -> int:
    if layer is None:
        return depth - 1
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)) or not 0 <= layer < depth:
        raise ValueError(f"layer must be a whole number from 0 to {depth - 1}, or None for the last; {layer!r} came.")
    return int(layer)


def kept_steps(at: Any, heard: Heard) -> Tensor:
    """(sequence, step): the numbers of the steps that are kept; -1 for none."""
    sequences, steps = len(heard.lengths), heard.steps
    if at is None:
        every = torch.arange(steps).expand(sequences, -1)
    elif at == "last":
        every = torch.from_numpy(heard.lengths - 1)[:, None]
    elif isinstance(at, bool) or not isinstance(at, (int, np.integer)) or not -steps <= at < steps:
        raise ValueError(f"at must be None, 'last' or a step from 0 to {steps - 1}; {at!r} came.")
    else:
        every = torch.full((sequences, 1), int(at) % steps)
    return torch.where(every < torch.from_numpy(heard.lengths)[:, None], every, -1)


def all_phrases(heard: Heard, phrases: Phrases, layer: int, kept: Tensor, *, credit: bool) -> tuple[Parts, float]:
    """The parts (phrase, sequence, kept step, direction x unit), and how far their sum is from the model's own."""
    sequences, width = heard.hidden[layer].shape[1:]
    size = 16 * phrases.number * kept.numel() * width
    if size > LARGEST:
        raise ValueError(
            f"the result must fit into {LARGEST / 1e9:.3g} GB; {phrases.number} phrases at {kept.shape[1]} steps of "
            f"{sequences} sequences would take {size / 1e9:.3g}. Name a step with at=, or give fewer phrases."
        )
    own, active = heard.hidden[layer].double(), heard.active
    found = Parts(*(own.new_full((phrases.number, *kept.shape, width), torch.nan) for _ in range(2)))
    rows, real = torch.arange(sequences)[:, None].expand_as(kept), kept >= 0
    error = 0.0
    together = max(1, VALUES // max(1, heard.steps * sequences * 4 * width))
    for begin in range(0, phrases.number, together):
        some = slice(begin, begin + together)
        cells, here = heard.cells[: layer + 1], phrases.part(some)
        parts = decompose(cells, heard.input, here, heard.initial, active, credit=credit)
        off = (parts.relevant + parts.irrelevant - own.unsqueeze(1)).abs().amax((1, 3))
        error = max(error, float(off[active].max()) if sequences else 0.0)
        for whole, part in zip(found, parts, strict=True):
            whole[some][:, real] = part[kept[real], :, rows[real]].transpose(0, 1)
    return found, error / max(float(own.transpose(0, 1)[active.T].abs().max()) if sequences else 1.0, 1e-300)


def labelled(heard: Heard, phrases: Phrases, parts: Parts, layer: int, kept: Tensor, *, single: bool) -> xr.Dataset:
    """The parts by name; with a readout also what it makes of them."""
    cell, directions = heard.cells[layer][0], len(heard.cells[layer])
    unit = "projection" if cell.proj_size else "unit"
    dims = ("phrase", "sequence", *(() if single else ("time",)))
    coords: dict[str, Any] = {
        "phrase": np.arange(phrases.number),
        "start": ("phrase", phrases.start),
        "stop": ("phrase", phrases.stop),
        "direction": np.array(DIRECTIONS[:directions], object),
        "sequence": np.arange(len(heard.lengths)),
        "length": ("sequence", heard.lengths),
        unit: np.arange(cell.output_size),
    }
    coords |= {} if single else {"time": np.arange(kept.shape[1])}
    result = xr.Dataset(coords=coords)
    for name, part in zip(Parts._fields, parts, strict=True):
        values = part[:, :, 0] if single else part
        shown = values.unflatten(-1, (directions, -1)).numpy()
        attrs = {"long_name": f"{name} part of the hidden state", "units": "1"}
        result[f"hidden_{name}"] = ((*dims, "direction", unit), shown, attrs)
        result[f"hidden_{name}"] = result[f"hidden_{name}"].transpose("phrase", "direction", ...)
        if heard.readout is not None and layer == len(heard.cells) - 1:
            read = values @ heard.readout.weight.detach().cpu().double().T
            attrs = {"long_name": f"{name} part of the output", "units": "1"}
            result[f"output_{name}"] = ((*dims, "output"), read.numpy(), attrs)
    if "output_relevant" in result and heard.readout is not None:
        bias = heard.readout.bias
        zero = np.zeros(heard.readout.out_features)
        result["output_bias"] = ("output", zero if bias is None else bias.detach().cpu().double().numpy())
        result = result.assign_coords(output=np.arange(heard.readout.out_features))
    return result
