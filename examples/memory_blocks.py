"""Which memory block of a network of *Learning to Forget* holds what? The network has read endless Reber strings.

python examples/memory_blocks.py
"""

import torch

import gatescope as gs

network, sample = gs.load_example("cerg-forget")
with torch.no_grad():
    recording = gs.record(network, sample.inputs, labels=dict(sample.labels))
print(f"{network.weight_count} weights, retention {recording.retention}, rebuilt to {recording.parity:.0e}")

resets = gs.resets(recording)
told = gs.selectivity(recording, "remember", signals=["cell_state"])["auc"].sel({"class": "T"})
for block, units in recording.unit.groupby("block"):
    gate = recording.forget_gate.sel(unit=units.unit[0])
    events = int(resets.block_count.sel(memory_block=block).sum())
    apart = float(abs(2 * told.sel(unit=units.unit) - 1).max())
    print(f"block {block}: forget gate {float(gate.mean()):.2f} on average, {events} resets, T from P: {apart:.2f}")

with torch.no_grad():  # a reset from outside is not one of the network's own
    outside = gs.record(network, sample.inputs, inputs_kwargs={"reset": sample.labels["boundary"]})
starts = outside.start.values.tolist()
print(f"reset from outside: {len(starts)} sequences, {starts.count('imposed')} of them imposed")
