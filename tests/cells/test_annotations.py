"""The shapes written in the signatures hold: the contract runs once more with every annotation checked."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import sys, pytest, torch
code = pytest.main(sys.argv[1:])
from gatescope.cells import step
from jaxtyping import TypeCheckError
try:
    step(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3))
except TypeCheckError:
    print("a wrong shape was caught")
sys.exit(code)
"""


@pytest.fixture(scope="module")
def checked():
    """A process in which the tests of cells ran with annotations checked by beartype."""
    # what is meant to be refused is refused by the checker first; the large comparison with torch shows no new shape
    fitting = "not told_in_one_sentence and not in_every_form and not dropout_draws"
    options = ["--jaxtyping-packages=gatescope.cells,beartype.beartype", "-q", "-p", "no:cacheprovider", "-k", fitting]
    files = [str(HERE / f"test_{name}.py") for name in ("contract", "scan", "recurrent")]
    command = [sys.executable, "-c", PROGRAM, *options, *files]
    return subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=300)


def test_all_annotated_shapes_hold_while_the_contract_runs(checked):
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr[-1000:]


def test_a_wrong_shape_is_caught_by_the_annotations(checked):
    assert "a wrong shape was caught" in checked.stdout
