"""The shapes written in the signatures hold: the contract runs once more with every annotation checked."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHECKED = "--jaxtyping-packages=gatescope.cells,beartype.beartype"


def test_all_annotated_shapes_hold_while_the_contract_runs():
    files = [str(HERE / f"test_{name}.py") for name in ("contract", "scan", "recurrent")]
    # what is meant to be refused is refused by the checker first; the large comparison with torch shows no new shape
    fitting = "not told_in_one_sentence and not in_every_form and not dropout_draws"
    command = [sys.executable, "-m", "pytest", CHECKED, "-q", "-p", "no:cacheprovider", "-k", fitting, *files]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_wrong_shape_is_caught_by_the_annotations():
    program = """
from jaxtyping import TypeCheckError, install_import_hook
with install_import_hook("gatescope.cells", "beartype.beartype"):
    from gatescope.cells import step
import torch
try:
    step(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3))
except TypeCheckError:
    print("caught")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "caught\n", done.stderr
