"""How often the analyzers find what is not there: untrained networks, labels of no meaning, 500 runs each."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
from scipy import stats
from torch import nn

import gatescope as gs

RUNS, LEVEL = 500, 0.05
MOST = stats.binom.ppf(0.999, RUNS, LEVEL)  # what the stated level gives in all but one of a thousand such tests
SEQUENCES, STEPS, UNITS = 2, 240, 6

pytestmark = pytest.mark.slow


def untrained(run: int) -> xr.Dataset:
    """What an LSTM or GRU with the weights it starts with does on random letters."""
    generator = torch.Generator().manual_seed(run)
    letters = torch.randint(0, 4, (SEQUENCES, STEPS), generator=generator)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(run)
        network = (nn.LSTM if run % 2 else nn.GRU)(4, UNITS, batch_first=True)
        return gs.record(network, torch.nn.functional.one_hot(letters, 4).float())


def meaningless(run: int, stay: float = 0.9) -> xr.DataArray:
    """Two letters that have nothing to do with the input, each kept from the step before with probability `stay`."""
    rng = np.random.default_rng([run, 1])
    changes = np.cumsum(rng.random((SEQUENCES, STEPS)) > stay, axis=1)
    drawn = rng.choice(["a", "b"], (SEQUENCES, STEPS + 1)).astype(object)
    return xr.DataArray(np.take_along_axis(drawn, changes, axis=1), dims=["sequence", "time"], name="nothing")


@pytest.fixture(scope="module")
def recordings() -> list[xr.Dataset]:
    return [untrained(run) for run in range(RUNS)]


def test_untrained_units_are_not_selective_for_labels_that_have_nothing_to_do_with_their_input(
    recordings: list[xr.Dataset],
) -> None:
    """A run counts when any unit is found: where nothing is there, the corrected p bounds just that."""
    for stay in (0.0, 0.9):
        found = 0
        for run, recording in enumerate(recordings):
            memory = "cell_state" if "cell_state" in recording else "hidden_state"
            result = gs.selectivity(recording, meaningless(run, stay), signals=memory, shifts=1)
            found += int((result["p_corrected"] < LEVEL).any())
        assert found <= MOST, f"{found} of {RUNS} runs at stay={stay}"


def test_untrained_memories_do_not_grow(recordings: list[xr.Dataset]) -> None:
    found = sum(int((gs.drift(recording)["verdict"] == "growing").any()) for recording in recordings)
    assert found <= MOST


def test_memories_whose_steps_were_shuffled_do_not_grow(recordings: list[xr.Dataset]) -> None:
    found = 0
    for run, recording in enumerate(recordings):
        order = np.random.default_rng([run, 2]).permutation(STEPS)
        shuffled = recording.isel(time=order).assign_coords(time=recording["time"])
        found += int((gs.drift(shuffled)["p_corrected"] < LEVEL).any())
    assert found <= MOST


def test_untrained_units_are_neither_latches_nor_event_detectors_of_labels_of_no_meaning(
    recordings: list[xr.Dataset],
) -> None:
    found = {"latch": 0, "event detector": 0}
    for run, recording in enumerate(recordings):
        holds = gs.roles(recording, meaningless(run), samples=1)["holds"]
        for role in found:
            found[role] += int(holds.sel(role=role).any())
    assert max(found.values()) <= stats.binom.ppf(0.999, RUNS, 0.01), found


def strings(size: int = 600) -> tuple[xr.Dataset, npt.NDArray[np.int64]]:
    """A trained network that holds T or P, and of every step the string it is in."""
    network, sample = gs.load_example("cerg-partial", size=size)
    with torch.no_grad():
        recording = gs.record(network, sample.inputs, labels=dict(sample.labels))
    return recording, np.cumsum(recording["boundary"].values, axis=1)


def test_what_a_trained_network_holds_is_not_found_in_labels_shuffled_between_strings() -> None:
    recording, string = strings()
    found = {"selectivity": 0, "latch": 0, "event detector": 0}
    real = recording["remember"].values
    for run in range(RUNS):
        letter = np.random.default_rng([run, 3]).choice(["T", "P"], int(string.max()) + 1).astype(object)
        shuffled = xr.DataArray(np.where(real == "", "", letter[string]), dims=["sequence", "time"], name="shuffled")
        p = gs.selectivity(recording, shuffled, signals="cell_state", shifts=1)["p_corrected"]
        holds = gs.roles(recording, shuffled, samples=1)["holds"]
        found["selectivity"] += int((p < LEVEL).any())
        for role in ("latch", "event detector"):
            found[role] += int(holds.sel(role=role).any())
    assert found["selectivity"] <= MOST, found
    assert max(found["latch"], found["event detector"]) <= stats.binom.ppf(0.999, RUNS, 0.01), found
    p = gs.selectivity(recording, "remember", signals="cell_state", shifts=1)["p_corrected"]
    assert (p < LEVEL).any()
    assert gs.roles(recording, "remember", samples=1)["holds"].sel(role="latch").any()
