"""How a network holds three bits: eight stable points at the corners of a cube, and saddles on its edges and faces.

    python examples/flip_flop.py [picture.png]

The network comes with gatescope: an LSTM of 16 units that was trained on the flip-flop (Sussillo and Barak 2013). Takes
a few seconds and always finds the same.
"""

import sys

import numpy as np
import torch
from matplotlib.figure import Figure

import gatescope as gs

model, sample = gs.load_example("flip-flop", size=1500)
with torch.no_grad():
    recording = gs.record(model, torch.from_numpy(sample.inputs), labels=dict(sample.labels))

found = gs.fixed_points(model, input=0.0, starts=recording)
modes, counts = np.unique(found["unstable"].values, return_counts=True)
print(f"{found.sizes['point']} fixed points of {found.attrs['starts']} starts")
for unstable, count in zip(modes.tolist(), counts.tolist(), strict=True):
    slowest = found["time_constant"].isel(point=found["unstable"].values == unstable, mode=0).values
    what = "the slowest mode returns within" if unstable == 0 else "the fastest mode leaves within"
    print(f"  {count:2} with {unstable} unstable modes: {what} {abs(slowest).min():.1f} to {abs(slowest).max():.1f} steps")

stable = found.isel(point=found["unstable"].values == 0)
hidden = stable["position"].isel(state=(stable["signal"] == "hidden_state").values).values
with torch.no_grad():
    said = model.readout(torch.from_numpy(hidden).float()).numpy()
held = ["".join("+" if value > 0 else "-" for value in row) for row in said]
print("the stable points say:", " ".join(sorted(held)))

if len(sys.argv) > 1:
    figure = Figure(figsize=(12.4, 5.6), layout="constrained")
    gs.plot_fixed_points(found, recording, ax=figure.add_subplot(1, 2, 1))
    gs.plot_fixed_points(found, recording, components=3, ax=figure.add_subplot(1, 2, 2, projection="3d"))
    figure.savefig(sys.argv[1], dpi=100)
