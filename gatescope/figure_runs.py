"""The networks behind the paper's figures, their recordings, and what the captions say of them."""

from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr

from .block_findings import block_findings, state_partials
from .cells import BlockNetwork
from .probe.analyzers.drift import drift
from .probe.attach import record
from .tasks.experiment import VARIANTS, Outcome, run_network
from .tasks.grammar import CERG

FORGETS, KEEPS = 242, 20
"""Numbers of the networks shown: one with forget gates, one of 1997."""
COMPARED = (3, 4)
"""Numbers of the networks whose training is shown with and without alpha decay."""
STEPS, KEPT_STEPS = 2000, 200
NEAR = 0.49
"""A prediction is right when every output is nearer to its target than this."""
STRAIGHT = 0.95
"""Share of a state's variance that its trend explains, from which on it is called straight."""
ROWS = {"constant alpha": "forget", "alpha decay 0.99": "forget-alpha-decay"}


class Run(NamedTuple):
    """A trained network on a stream that it never saw."""

    outcome: Outcome
    recording: xr.Dataset
    wrong: int  # steps with a wrong prediction
    first_wrong: int  # -1 where there is none


def shown(variant: str, number: int, steps: int) -> Run:
    """Train a network, or rather make it again: the same row and number give the same bits."""
    setting = VARIANTS[variant]
    outcome = run_network(setting, number)
    network = BlockNetwork(**asdict(setting.wiring), dtype=torch.float64).load_weights(outcome.weights)
    sample = CERG(seed=setting.seed, network=number).sample(steps)
    outputs = []

    def keep(module: torch.nn.Module, args: object, output: tuple[torch.Tensor, object]) -> None:
        outputs.append(output[0].numpy())

    handle = network.register_forward_hook(keep)
    with torch.no_grad():
        recording = record(network, sample.inputs, labels=dict(sample.labels))
    handle.remove()
    wrong = np.any(np.abs(outputs[0][0] - sample.targets[0]) >= NEAR, axis=-1)
    return Run(outcome, recording, int(wrong.sum()), int(wrong.argmax()) if wrong.any() else -1)


class Found(NamedTuple):
    """All that the figures from recordings show."""

    forgets: Run
    blocks: xr.Dataset
    partials: xr.Dataset
    keeps: Run
    drift: xr.Dataset
    kept_partials: xr.Dataset
    growing: int  # the unit of the network of 1997 that is shown


def found() -> Found:
    forgets, keeps = shown("forget", FORGETS, STEPS), shown("1997", KEEPS, KEPT_STEPS)
    trend = drift(keeps.recording, late=1.0)
    return Found(
        forgets,
        block_findings(forgets.recording),
        state_partials(forgets.recording),
        keeps,
        trend,
        state_partials(keeps.recording),
        growing_unit(keeps.recording, trend),
    )


def growing_unit(recording: xr.Dataset, trend: xr.Dataset) -> int:
    """Of the states that grow in a straight line until the cell shows its output gate alone, the last to get there."""
    values = recording["cell_state"].values[0, 0, 0]
    straight = [np.corrcoef(np.arange(len(line)), line)[0, 1] ** 2 >= STRAIGHT for line in values.T]
    growing = straight & (trend["verdict"].values[0, 0] == "growing")
    last = np.where(growing, trend["degenerate_from"].values[0, 0, 0], np.nan)
    if np.isnan(last).all():
        raise ValueError("A state of the network must grow in a straight line; none does. Choose another network.")
    return int(trend["unit"].values[np.nanargmax(last)])


def holding_unit(blocks: xr.Dataset, units: xr.DataArray) -> int:
    """The unit of the holding block that tells T from P best."""
    apart = np.where(units["block"].values == blocks.attrs["holder"], abs(blocks.auc.values - 0.5), -1)
    return int(units.values[apart.argmax()])


def trained() -> dict[str, list[Outcome]]:
    """The training of figure 10: the same networks with and without alpha decay."""
    return {name: [run_network(VARIANTS[row], number) for number in COMPARED] for name, row in ROWS.items()}
