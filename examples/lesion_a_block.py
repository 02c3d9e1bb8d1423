"""Does the block that seems to hold the long memory hold it: take each block out and look at what breaks.

    python examples/lesion_a_block.py [docs/pictures/lesion_a_block.png]

A network of *Learning to Forget* predicts the next symbol of strings one after another. At the end of each string it
must say T or P as at its start, 6 or more steps ago (the long lag); everything else follows from the last symbols.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

import gatescope as gs

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "lesion_a_block.png"
STREAMS, STEPS = 32, 250

network, _ = gs.load_example("cerg-latch")
sample = gs.tasks.CERG(streams=STREAMS).sample(STEPS)
inputs = torch.from_numpy(sample.inputs)

roles = gs.roles(gs.record(network, inputs, labels=dict(sample.labels)), "remember")
effects = gs.ablation(network, inputs, gs.tasks.lag_errors(sample), over="block")
result = gs.role_check(roles, effects)

print(f"wrong predictions without each block, {STREAMS} streams of {STEPS} symbols")
for block in result["memory_block"].values:
    here = result.sel(memory_block=block, layer=0, direction="forward")
    long, short = here["specialisation"].values
    print(f"block {block}: long lag {long:+.3f}, short lag {short:+.3f}: {here['damage'].item()}")
    print(f"  {here['finding'].item()}")

windows = gs.ablation(network, inputs[:, :60], gs.tasks.lag_errors(gs.tasks.CERG(streams=STREAMS).sample(60)), time=4)
figure = Figure(figsize=(12, 4.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(4, 5))
gs.plot_role_check(result, ax=left)
gs.plot_ablation(windows, metric="long", ax=right)
path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
figure.savefig(path, dpi=100)
print(f"wrote {path}")
