"""What a model loses when a unit, a block or a gate is taken out: metric(lesioned) - metric(intact), many at once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from scipy import stats
from torch import nn

from .ablation_asked import called_with, check, check_recording, recurrent_site
from .analyzers.paired import mean_interval, sign_flip_p
from .attach import record
from .lesions import Fill, Over, To, Wanted, wanted, windows
from .metrics import Measured, Metric
from .passes import Passes
from .progress import bar
from .site import Index


def ablation(
    model: nn.Module,
    inputs: Any,
    metric: Metric,
    *,
    over: Over = "unit",
    to: To | None = None,
    module: str | None = None,
    layer: Index = None,
    direction: str | Sequence[str] | None = None,
    unit: Index = None,
    block: Index = None,
    gate: str | Sequence[str] | None = None,
    time: int | slice | Sequence[slice] | None = None,
    recording: xr.Dataset | None = None,
    lengths: Any = None,
    inputs_kwargs: Mapping[str, Any] | None = None,
    batch_dim: int | None = None,
    rows: int = 512,
    draws: int = 4,
    confidence: float = 0.95,
    samples: int = 2000,
    seed: int = 0,
) -> xr.Dataset:
    """What each unit, block or gate does for a model: how a metric changes when it is taken out of the recurrence.

        effect = metric(lesioned) - metric(intact), the mean over sequences

    A unit that is taken out has its memory and what it shows held at one value at every step, inside the recurrence, so
    that no other unit sees it and it carries nothing on (a state that is handed in is read once, by the first step); a
    gate is held open, shut or at a value that no longer depends on the input. Everything runs in evaluation mode;
    modes, random numbers, gradients and hooks are left as they were.

    Many lesions run in one pass: every sequence is repeated, each copy under a lesion of its own. Copies that are left
    intact, and others under one lesion, must then answer what the model answers alone; where they do not, because
    its output mixes sequences, say, lesions run one by one and the attribute `remark` says why.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with a recurrent module inside.
    inputs
        What it is called with: a tensor or packed sequence, a tuple of arguments, or a mapping of their names.
    metric
        `metric(output)` of what the model returns: a tensor, array or list with one number a sequence, or one number
        for all, or a mapping of names to such.
    over
        What is taken out at a time: `"unit"`, `"block"` (of units that share gates), `"gate"` (one gate of all units
        of a layer), `"unit_gate"` (one gate of one unit).
    to
        What it is held at. `"zero"`, by default for units and blocks; for gates, shut. `"one"`: a gate is open, which
        is how it is left out of an LSTM. `"mean"`, by default for gates: the unit's mean over all sequences and steps,
        so that what the value conveys is gone and its average effect stays. `"resample"`: the values that it has, at
        the same steps, in another sequence of the batch, or in one of `recording`; the mean over `draws` of such.
    module
        Path of the recurrent module, where the model has several.
    layer, direction, unit, block, gate
        Take out only these; by default all.
    time
        Take out only in stretches of time, each a lesion of its own: slices of the steps of the input, or a width in
        steps that cuts all of them. By default at every step. Where a model calls the module several times, steps count
        from the start of each call; those of cells in a loop go on from call to call.
    recording
        For `"mean"` and `"resample"`: a recording of the module to take values from; by default one is made of these
        inputs.
    lengths
        For that recording: steps of each sequence where padding is not packed.
    inputs_kwargs
        Further arguments by name.
    batch_dim
        The dimension of the inputs along which sequences lie. By default the first that has as many entries as the
        module reads sequences and that the check above confirms.
    rows
        Most sequences, copies included, in one pass.
    draws
        Donors drawn for `"resample"`.
    confidence, samples, seed
        Of the bootstrap intervals; the seed also of donors and of the random signs behind p.

    Returns
    -------
    xr.Dataset
        Over `metric`, `layer`, `direction` and what was taken out (`unit`, `memory_block`, `gate`), with `time` over
        that too (the first step of each stretch; `time_stop` is the one after its last): `effect`; `effect_low`,
        `effect_high`, its interval over sequences; `p` (sign flips, two-sided) and `p_adjusted` (Benjamini and
        Hochberg, over all lesions); `effect_by_sequence`. Over `metric`: `intact`; with `sequence`
        `intact_by_sequence`. A metric that gives one number for all has none of the intervals and p (NaN), and
        `per_sequence` is False. Without a mapping the metric's name is `metric`.

    Raises
    ------
    ValueError
        When a choice is not there, a metric returns NaN or not one number a sequence, or the model does not give the
        same output twice.
    TypeError
        For a metric that is no function or returns no numbers, or a model that cannot be opened.

    References
    ----------
    A. S. Morcos, D. G. T. Barrett, N. C. Rabinowitz, M. Botvinick (2018). On the importance of single directions for
    generalization. arXiv:1803.06959 (units held at zero and at their mean).
    Y. Lakretz et al. (2019). The emergence of number and syntax units in LSTM language models. arXiv:1903.07435 (units
    of an LSTM taken out one by one).
    K. Greff et al. (2017). LSTM: A Search Space Odyssey. arXiv:1503.04069 (gates left out).
    T. C. Hesterberg (2015). What Teachers Should Know About the Bootstrap. doi:10.1080/00031305.2015.1089789.

    Examples
    --------
    Two units that add up their inputs; the output is the first one's last state:

    >>> model = nn.RNN(2, 2, nonlinearity="relu", bias=False)
    >>> for weight in model.parameters():
    ...     _ = nn.init.eye_(weight)
    >>> x = torch.tensor([[[1.0, 5.0]], [[2.0, 5.0]]])  # (time, sequence, input)
    >>> result = ablation(model, x, lambda output: output[0][-1, :, 0])
    >>> result.intact.item(), result.effect.values.ravel().tolist()
    (3.0, [-3.0, 0.0])
    """
    path, site = recurrent_site(model, module)
    if to is None:
        to = "mean" if "gate" in str(over) else "zero"
    counts = {"rows": rows, "draws": draws, "samples": samples, "seed": seed}
    check(metric, over, to, confidence, batch_dim, counts)
    chosen = {"layer": layer, "direction": direction, "unit": unit, "block": block, "gate": gate}
    what = wanted(site, over, chosen)
    args, kwargs = called_with(inputs, inputs_kwargs)
    with evaluating(model):
        own = recording is None
        names = site.gates if "gate" in over else site.memory
        if recording is not None:
            check_recording(recording, site, names)
        elif to in ("mean", "resample"):
            recording = record(model, *args, inputs_kwargs=kwargs, module=path, signals=names, lengths=lengths)
        fill = Fill(to, recording, own, seed)
        passes = Passes(model, path, args, kwargs, metric, fill, rows, batch_dim, site.cell.hidden_size)
        stretches = None if time is None else windows(time, passes.steps)
        if stretches is not None:
            what = in_stretches(what, stretches)
        differences = run_all(passes, what, draws if to == "resample" else 1)
    result = result_of(what, passes.intact, differences, confidence, samples, seed)
    about: dict[str, str | int | float] = {"measure": "ablation", "module": path}
    about |= {"cell": type(site.cell).__name__, "over": over, "to": to}
    about |= {"batched": int(passes.copies > 1), "copies": passes.copies, "rows": int(rows), "remark": passes.remark}
    about |= {"draws": int(draws), "confidence": float(confidence), "samples": int(samples), "seed": int(seed)}
    return result.assign_attrs(about)


def run_all(passes: Passes, what: Wanted, draws: int) -> npt.NDArray[np.float64]:
    """Metric of the lesioned less that of the intact model, (metric, lesion, sequence), the mean over draws."""
    jobs = [(lesion, draw) for lesion in what.lesions for draw in range(draws)]
    shown = bar(len(jobs), doing="ablation", unit="lesion")
    try:
        found = np.stack(list(passes.run(jobs, shown)), axis=1)
    finally:
        if shown is not None:
            shown.close()
    return np.asarray(found.reshape(len(found), len(what.lesions), draws, -1).mean(axis=2))


def in_stretches(what: Wanted, stretches: list[tuple[int, int]]) -> Wanted:
    """Every lesion in every stretch of time."""
    lesions = [one._replace(start=start, stop=stop) for one in what.lesions for start, stop in stretches]
    starts, stops = np.array(stretches).T
    coords = {**what.coords, "time": starts, "time_stop": ("time", stops)}
    return Wanted(lesions, (*what.dims, "time"), coords)


def result_of(
    what: Wanted,
    intact: Measured,
    differences: npt.NDArray[np.float64],
    confidence: float,
    samples: int,
    seed: int,
) -> xr.Dataset:
    """The labelled result from the differences (metric, lesion, sequence)."""
    sizes = tuple(len(what.coords[name]) for name in what.dims)
    single = np.array(intact.single)
    effect = np.where(single[:, None], differences[..., 0], differences.mean(axis=2))
    low, high = mean_interval(differences, confidence, samples, seed)
    p = sign_flip_p(differences, seed)
    for values in (low, high, p):
        values[single] = np.nan
    adjusted = np.stack([stats.false_discovery_control(row) if np.isfinite(row).all() else row for row in p])
    differences = np.where(single[:, None, None], np.nan, differences)
    dims = ("metric", *what.dims)

    def placed(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return values.reshape(len(single), *sizes, *values.shape[2:])

    share = f"{100 * confidence:g} %"
    data = {
        "effect": (dims, placed(effect), {"long_name": "metric of the lesioned less that of the intact model"}),
        "effect_low": (dims, placed(low), {"long_name": f"lower end of the {share} interval of the effect"}),
        "effect_high": (dims, placed(high), {"long_name": f"upper end of the {share} interval of the effect"}),
        "p": (dims, placed(p), {"long_name": "p of an effect so far from 0, two-sided", "units": "1"}),
        "p_adjusted": (dims, placed(adjusted), {"long_name": "p corrected for the number of lesions", "units": "1"}),
        "effect_by_sequence": ((*dims, "sequence"), placed(differences), {"long_name": "effect on each sequence"}),
        "intact": ("metric", intact.means, {"long_name": "metric of the intact model"}),
        "intact_by_sequence": (
            ("metric", "sequence"),
            np.where(single[:, None], np.nan, intact.values),
            {"long_name": "metric of the intact model on each sequence"},
        ),
    }
    coords = {
        **what.coords,
        "metric": np.array(intact.names, dtype=object),
        "per_sequence": ("metric", ~single),
        "sequence": np.arange(differences.shape[2]),
    }
    return xr.Dataset(data, coords)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; modes and random numbers are put back."""
    modes = {part: part.training for part in model.modules()}
    devices = sorted({weight.device.index for weight in model.parameters() if weight.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        try:
            for part in modes:
                part.training = False
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode
