"""What a trained network does, in sentences: findings, the part of every unit, and where its memory is thrown away.

    python examples/analyse.py [name]

The name is one of `gs.examples()`; by default cerg-forget, which learned the continual embedded Reber grammar.
"""

import sys

import torch

import gatescope as gs

network, sample = gs.load_example(sys.argv[1] if len(sys.argv) > 1 else "cerg-forget")
with torch.no_grad():
    recording = gs.record(network, sample.inputs, labels=dict(sample.labels))

found = gs.describe(recording)
print(f"{found.sizes['finding']} findings, the largest effect first:")
for effect, text in zip(found["effect"].values, found["text"].values, strict=True):
    print(f"  {effect:.2f}  {text}")

parts = gs.roles(recording, "remember").isel(layer=0, direction=0)
print("what each unit does with the letter it must remember:")
for unit, block, role, sure in zip(
    parts["unit"].values, parts["block"].values, parts["unit_role"].values, parts["confidence"].values, strict=True
):
    scale = parts["evidence"].sel(statistic="time_scale", unit=unit).item()
    print(f"  unit {unit} of block {block}: {role}, confidence {sure:.2f}, time scale {scale:.3g} steps")

events = gs.resets(recording)
if events.attrs["reason"]:
    print(f"no learned resets. {events.attrs['reason']}")
else:
    aligned = gs.alignment(events, tolerance=1).isel(layer=0, direction=0)
    print(f"resets at the {int(aligned['boundaries'])} boundaries between strings:")
    for block in aligned["memory_block"].values:
        here = aligned.sel(memory_block=block)
        print(
            f"  block {block}: {int(here['block_events'])} resets, precision {here['block_precision'].item():.2f}, "
            f"recall {here['block_recall'].item():.2f}"
        )
