import numpy as np
import pytest

from gatescope.dashboards import reduction


@pytest.mark.parametrize(("steps", "units"), [(1, 1), (60, 256), (1_000_000, 512), (7, 400_000), (300_001, 1)])
def test_no_more_cells_than_allowed_reach_the_browser_unless_one_step_has_more(steps, units):
    size = reduction.bin_size(steps, units)
    assert -(-steps // size) * units <= max(reduction.MOST_CELLS, units)


def test_a_spike_of_a_long_trace_is_drawn():
    values = np.zeros(100_003)
    values[[54_321, 100_002]] = 1.0, -1.0
    kept = reduction.thinned(values)
    assert {54_321, 100_002} <= set(kept.tolist())
    assert len(kept) <= reduction.MOST_POINTS + 50
