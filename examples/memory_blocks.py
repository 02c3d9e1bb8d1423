"""Train the network of *Learning to Forget* on endless Reber strings, then see which memory block holds what.

python examples/memory_blocks.py
"""

from dataclasses import asdict

import torch

import gatescope as gs
from gatescope.tasks.experiment import VARIANTS, run_network

setting = VARIANTS["forget"]
outcome = run_network(setting, 7)  # in a few seconds, the same weights on any x86-64 machine
network = gs.BlockNetwork(**asdict(setting.wiring), dtype=torch.float64).load_weights(outcome.weights)
sample = gs.tasks.CERG(seed=1).sample(2000)
print(f"{network.weight_count} weights, trained on {outcome.streams:,} streams: {outcome.verdict}")

with torch.no_grad():
    recording = gs.record(network, sample.inputs, labels=dict(sample.labels))
print(f"retention: {recording.retention}, rebuilt with an error of at most {recording.parity:.0e}")

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
