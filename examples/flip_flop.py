"""How a network holds three bits: eight stable points at the corners of a cube, and saddles on its edges and faces.

    python examples/flip_flop.py [picture.png]

The network comes with gatescope: an LSTM of 16 units that was trained on the flip-flop (Sussillo and Barak 2013). At
last contextual decomposition says which pulse each output is due to. Takes a few seconds, and always finds the same.
"""

import sys

import numpy as np
import torch
from matplotlib.figure import Figure

import gatescope as gs

model, sample = gs.load_example("flip-flop", size=1500)
inputs = torch.from_numpy(sample.inputs)
with torch.no_grad():
    recording = gs.record(model, inputs, labels=dict(sample.labels))

found = gs.fixed_points(model, input=0.0, starts=recording, count=2048)
print(f"{found.sizes['point']} fixed points of {found.attrs['starts']} starts")
modes, counts = np.unique(found["unstable"].values, return_counts=True)
for unstable, count in zip(modes.tolist(), counts.tolist(), strict=True):
    first = abs(found["time_constant"].isel(point=found["unstable"].values == unstable, mode=0).values)
    what = "the slowest mode returns within" if unstable == 0 else "the fastest mode leaves within"
    print(f"  {count:2} with {unstable} unstable modes: {what} {first.min():.1f} to {first.max():.1f} steps")

stable = found.isel(point=found["unstable"].values == 0)
hidden = stable["position"].isel(state=(stable["signal"] == "hidden_state").values).values
with torch.no_grad():
    said = model.readout(torch.from_numpy(hidden).float()).numpy()
print("the stable points say:", " ".join(sorted("".join("+" if bit > 0 else "-" for bit in row) for row in said)))

parts = gs.contextual_decomposition(model, inputs[:, :60], biases="rest")
right = 0
for bit in range(3):
    shares = abs(parts["output_relevant"].isel(sequence=0, output=bit).transpose("time", "phrase").values)
    last = [np.flatnonzero(sample.inputs[0, : step + 1, bit])[-1] for step in range(60)]
    right += int((shares.argmax(axis=1) == last).sum())
print(f"the step that contributes most is the last pulse of the bit in {right} of 180 cases")

if len(sys.argv) > 1:
    figure = Figure(figsize=(12.4, 10.4), layout="constrained")
    gs.plot_fixed_points(found, recording, ax=figure.add_subplot(2, 2, 1))
    gs.plot_fixed_points(found, recording, components=3, ax=figure.add_subplot(2, 2, 2, projection="3d"))
    gs.plot_decomposition(parts, output=0, ax=figure.add_subplot(2, 2, 3))
    pulses = sample.labels["pulses"][0, :24].tolist()
    last_step = gs.contextual_decomposition(model, inputs[:, :24], at="last", biases="rest")
    gs.plot_decomposition(last_step, output=0, labels=pulses, ax=(axes := figure.add_subplot(2, 2, 4)))
    axes.tick_params(axis="x", rotation=90)
    figure.savefig(sys.argv[1], dpi=80)
