"""The error at the long lag of the grammars, T or P at a string's end, apart from that at all other steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .automaton import SYMBOLS
from .grammar import Sample
from .testing import TOLERANCE, Outputs


def long_steps(sample: Sample) -> npt.NDArray[np.bool_]:
    """Steps whose prediction needs the symbol that was read at the string's start, (sequence, time).

    These are the last steps on which it must be known: the next symbol is the T or P that repeats it, and no other.

    >>> from .grammar import ERG
    >>> strings = ERG(seed=1).sample(1)
    >>> "".join(strings.labels["symbol"][0]), np.flatnonzero(long_steps(strings)[0]).tolist()
    ('BTBPVVETE', [6])
    """
    remembered = sample.labels["remember"][..., None] == np.array([*SYMBOLS], dtype=object)
    return np.asarray(sample.mask & remembered.any(axis=-1) & (sample.targets == remembered).all(axis=-1))


def lag_errors(sample: Sample, *, outputs: Outputs = "probabilities") -> Callable[[Any], dict[str, npt.NDArray[Any]]]:
    """A metric for `gatescope.ablation`: the share of wrong predictions at the long lag and at the other steps.

    A prediction is wrong when |target - output| >= 0.49 for any output, as in *Learning to Forget*. `long` counts the
    steps before the T or P at a string's end, which repeats the second symbol; `short` counts all others, which follow
    from the last few symbols.

    Parameters
    ----------
    sample
        What the model reads: of `ERG` or `CERG`, every sequence with at least one string's end.
    outputs
        Whether the model gives `"probabilities"`, as `BlockNetwork`, or `"logits"`.

    Returns
    -------
    function
        Of what the model returns, outputs (sequence, time, symbol) or a tuple that begins with them: a mapping of
        `long` and `short` to arrays (sequence,), shares from 0 to 1.

    Raises
    ------
    ValueError
        When a sequence has no step of one kind, or outputs do not have the shape of the targets.

    Examples
    --------
    What is always right but forgets T and P says half of either:

    >>> from .grammar import ERG
    >>> strings = ERG(seed=1).sample(3)
    >>> said = strings.targets.copy()
    >>> said[long_steps(strings)] = [0, 0.5, 0.5, 0, 0, 0, 0]
    >>> {name: error.tolist() for name, error in lag_errors(strings)(said).items()}
    {'long': [1.0, 1.0, 1.0], 'short': [0.0, 0.0, 0.0]}
    """
    if outputs not in ("logits", "probabilities"):
        raise ValueError(f"outputs must be 'logits' or 'probabilities'; {outputs!r} came.")
    long = long_steps(sample)
    kinds = {"long": long, "short": sample.mask & ~long}
    for name, steps in kinds.items():
        lacking = np.flatnonzero(~steps.any(axis=1))
        if len(lacking):
            raise ValueError(
                f"every sequence must have a step of the {name} lag; sequence {lacking[0]} has none. Take longer "
                "sequences of ERG or CERG."
            )

    def metric(output: Any) -> dict[str, npt.NDArray[Any]]:
        said = output[0] if isinstance(output, tuple) else output
        said = said.detach().double().cpu().numpy() if isinstance(said, Tensor) else np.asarray(said)
        if said.shape != sample.targets.shape:
            raise ValueError(f"outputs must have the targets' shape {sample.targets.shape}; {said.shape} came.")
        if outputs == "logits":
            said = 1 / (1 + np.exp(-said))
        wrong = ~(np.abs(sample.targets - said) < TOLERANCE).all(axis=-1)
        return {name: (wrong & steps).sum(axis=1) / steps.sum(axis=1) for name, steps in kinds.items()}

    return metric
