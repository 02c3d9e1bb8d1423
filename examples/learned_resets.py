"""The resets that a network of *Learning to Forget* has learned, against the ends of the strings it reads.

python examples/learned_resets.py [picture.png]
"""

import sys

import torch
from matplotlib import pyplot

import gatescope as gs

network, sample = gs.load_example("cerg-forget")
with torch.no_grad():
    recording = gs.record(network, sample.inputs, labels=dict(sample.labels))

events = gs.resets(recording)
found = gs.alignment(events, tolerance=1).isel(layer=0, direction=0)  # against the label `boundary`
for block in found.memory_block.values:
    here = found.sel(memory_block=block)
    print(
        f"block {block}: {int(here.block_events)} resets, precision {float(here.block_precision):.2f}, "
        f"recall {float(here.block_recall):.2f}, corrected p {float(here.block_p_adjusted):.1e}"
    )
print(
    "set off by:",
    dict(zip(events.unit.values.tolist(), gs.triggers(events, "symbol").trigger.values[0, 0], strict=True)),
)

pyplot.switch_backend("Agg")
first = events.isel(event=(events.onset < 120).values, time=slice(0, 120)).assign_coords(length=("sequence", [120]))
axes = gs.plot_resets(first, labels="symbol")
axes.figure.set_size_inches(11, 3.6)
if len(sys.argv) > 1:
    axes.figure.savefig(sys.argv[1], dpi=110)
