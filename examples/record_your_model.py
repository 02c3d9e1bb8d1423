"""Record your own model: put it in place of `Tagger`, and your batch in place of `batch`.

python examples/record_your_model.py
"""

import torch
from torch import nn

import gatescope as gs


class Tagger(nn.Module):
    """Any model with recurrent layers inside; gatescope does not change it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.rnn = nn.LSTM(16, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(64, 5)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embedding(batch))
        return self.tag(states)


torch.manual_seed(0)
model, batch = Tagger().eval(), torch.randint(30, (4, 50))

with gs.attach(model) as probe, torch.no_grad():
    model(batch)
recording = probe.recording("rnn")  # an xarray.Dataset: layer, direction, sequence, time, unit

print(f"certificate: gates rebuilt with an error of at most {recording.attrs['parity']:.0e}")
print(f"signals: {', '.join(name for name in recording.data_vars if 'time' in recording[name].dims)}")
trace = recording["forget_gate"].sel(layer=0, direction="forward", sequence=2, unit=17)
print(
    f"forget gate of unit 17 in layer 0: {float(trace.min()):.2f} to {float(trace.max()):.2f} over {trace.size} steps"
)
verdicts = gs.saturation(recording)["verdict"].sel(signal="forget_gate")
print(f"forget gates that switch or are stuck, before training: {int((verdicts != 'graded').sum())} of {verdicts.size}")
