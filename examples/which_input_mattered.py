"""Which input an output hangs on, in a network where the answer is known, and a method that cannot see it.

    python examples/which_input_mattered.py [picture.png]

An LSTM that comes with gatescope holds three bits: a pulse of +1 or -1 on a channel sets that channel's bit, and all
other steps are 0. So a bit at the end hangs on the last pulse of its own channel, if that pulse turned the bit; where
it only said again what the bit was, leaving it out changes nothing.
"""

import sys

import numpy as np
import torch
from matplotlib import pyplot

import gatescope as gs

STEPS, WINDOWS = 30, 40

model, sample = gs.load_example("flip-flop", size=STEPS * WINDOWS)
windows = torch.as_tensor(sample.inputs).reshape(WINDOWS, STEPS, 3)

counts = {"feature_ablation": [0, 0.0, 0], "integrated_gradients": [0, 0.0, 0]}
turns, again, most_again = 0, 0, 0.0
for bit in range(3):
    found = {name: gs.attribution(model, windows, target=(-1, bit), method=name) for name in counts}
    for window, pulses in enumerate(windows[:, :, bit].numpy()):
        steps = np.flatnonzero(pulses)
        if len(steps) < 2:
            continue
        last, before = steps[-1], steps[-2]
        values = {name: np.abs(one.attribution.values[window]) for name, one in found.items()}
        if pulses[last] == pulses[before]:
            again += 1
            most_again = max(most_again, float(values["feature_ablation"][last, bit]))
            continue
        turns += 1
        for name, value in values.items():
            count = counts[name]
            count[0] += int(np.unravel_index(value.argmax(), value.shape) == (last, bit))
            count[1] += float(value[last, bit] / value.sum())
            count[2] += int(found[name].incomplete[window]) if "incomplete" in found[name] else 0

print(f"the last pulse turned its bit {turns} times; the method's largest value is at that pulse:")
for name, (hits, share, marked) in counts.items():
    print(f"  {name:<21}{hits:>3} of {turns}, mean share {share / turns:.2f}, marked as incomplete {marked} times")
print(
    f"it said again what the bit was {again} times; leaving it out then changes the output by at most {most_again:.1f}"
)

# Why: on the straight path from no input to the input the latch jumps, and a gradient does not see a jump.
window = next(place for place, pulses in enumerate(windows[:, :, 0].numpy()) if len(np.flatnonzero(pulses)) > 2)
with torch.no_grad():
    path = [float(model(share * windows[[window]])[0][0, -1, 0]) for share in np.linspace(0, 1, 11)]
print("bit 0 of window", window, "with all inputs scaled from 0 to 1:", *(f"{value:+.1f}" for value in path))

if len(sys.argv) > 1:
    pyplot.switch_backend("Agg")
    shown = gs.attribution(model, windows[[window]], target=(-1, 0), method="feature_ablation")
    gs.figure_attribution(shown).savefig(sys.argv[1], dpi=110)
