"""Change what a gate does, inside a fused LSTM, and see what its network goes on to say.

    python examples/clamp_a_gate.py

The network comes with gatescope: an `nn.LSTM` that holds three bits, each set by the pulses of its own channel.
"""

import torch

import gatescope as gs

STEPS, AT = 60, 20  # the bits are interfered with from step AT on

model, _ = gs.load_example("flip-flop", size=STEPS)
pulses = torch.zeros(8, STEPS, 3)
starts = torch.tensor([[1 - 2 * (row >> bit & 1) for bit in range(3)] for row in range(8)])
pulses[:, 0] = starts  # every row writes another three bits
pulses[:, 40] = -starts  # and turns them all later


def bits(output: tuple[torch.Tensor, object]) -> torch.Tensor:
    """What the network says at every step, (sequence, time, bit), as -1 and 1."""
    return output[0].detach().sign()


own = bits(model(pulses))
print(f"own run: the bits turn at step {int((own != own[:, :1]).any(2).any(0).float().argmax())}")

# A forward hook that sets the memory to 0 after the fact changes one step: the kernel has long gone on without it.
handle = model.recurrent.register_forward_hook(
    lambda module, args, output: (output[0].index_fill(1, torch.tensor(AT), 0.0), output[1])
)
hooked = bits(model(pulses))
handle.remove()
print(f"hidden state 0 at step {AT}, by a hook: {int((hooked != own).any(2).any(0).sum())} of {STEPS} steps change")

with gs.intervene(model, "cell_state", 0.0, time=AT):
    erased = bits(model(pulses))
print(f"cell state 0 at step {AT}, by gs.intervene: {int((erased != own).any(2).any(0).sum())} of {STEPS} steps change")

# Nothing may be written: input gates shut, forget gates open. The turning pulses of step 40 are not heard.
late = slice(AT, None)
with gs.intervene(model, "input_gate", 0.0, time=late), gs.intervene(model, "forget_gate", 1.0, time=late):
    held = bits(model(pulses))
keep = (held[:, late] == starts[:, None]).all(2).all(1)
print(f"gates held from step {AT}: {int(keep.sum())} of 8 rows keep their bits")

# The memory of another run is put in at one step: from there on the network holds that run's bits.
with torch.no_grad():
    recording = gs.record(model, pulses)
other = recording.assign_coords(sequence=recording.sequence.values[::-1])  # the row with all three bits turned
with gs.intervene(model, "cell_state", other, time=AT):
    patched = bits(model(pulses))
turned = (patched[:, AT + 1 : 40] == -starts[:, None]).all(2).all(1)
print(f"memory patched at step {AT}: {int(turned.sum())} of 8 rows say the other run's bits")
