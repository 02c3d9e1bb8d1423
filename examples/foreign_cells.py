"""Cells of other packages, each told to gatescope in about ten lines and recorded with a certificate.

    python examples/foreign_cells.py

torchrecurrent, opacus, snntorch and ncps know nothing of gatescope. What their cells compute is said in two ways: as
one of gatescope's cells with the module's weights, or, where none has these equations, as a cell of your own. What is
said wrongly raises a ParityError. Needs: pip install torchrecurrent opacus snntorch ncps
"""

import torch
from ncps.torch.lstm import LSTMCell as NcpsLSTMCell
from opacus.layers.dp_rnn import DPLSTM, DPLSTMCell
from snntorch import SLSTM
from torch import Tensor, nn
from torch.nn.functional import linear
from torchrecurrent import MGU, MGUCell, OriginalLSTM, OriginalLSTMCell, PeepholeLSTM
from torchrecurrent import PeepholeLSTMCell as ForeignPeepholeLSTMCell

import gatescope as gs
from gatescope.cells import Remember, step
from gatescope.signals import Tap, no_tap

# -- torchrecurrent: a minimal gated unit, whose forget gate overwrites where it is near 1. No cell of gatescope has
#    these equations, so here is one.


class MinimalGatedUnitCell(gs.AbstractCell):
    signals = (
        gs.Signal("forget_gate", "f", role="gate", bounds=(0, 1)),
        gs.Signal("candidate", "n", role="candidate", bounds=(-1, 1)),
        gs.Signal("hidden_state", "h", role="memory", bounds=(-1, 1)),
    )
    retention = "1 - forget_gate"
    states = ("hidden_state",)
    gates = ("forget_gate", "candidate")

    def __init__(self, module: MGUCell) -> None:
        super().__init__(module.input_size, module.hidden_size)
        for name, weight in module.state_dict().items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(
        self, x: Tensor, state: tuple[Tensor, ...], tap: Tap = no_tap, remember: Remember = step
    ) -> tuple[Tensor, ...]:
        (h,) = state
        x_f, x_n = linear(x, self.weight_ih, self.bias_ih).chunk(2, dim=-1)
        (w_f, w_n), (b_f, b_n) = self.weight_hh.chunk(2), self.bias_hh.chunk(2)
        f = tap("forget_gate", tap("forget_gate_preactivation", x_f + linear(h, w_f, b_f)).sigmoid())
        n = tap("candidate", tap("candidate_preactivation", x_n + linear(f * h, w_n, b_n)).tanh())
        return (tap("hidden_state", (1 - f) * h + f * n),)


gs.register(MGUCell, MinimalGatedUnitCell)


# -- torchrecurrent: peepholes, under another name and in another shape.


def peephole_cell(module: ForeignPeepholeLSTMCell) -> gs.AbstractCell:
    cell = gs.PeepholeLSTMCell(module.input_size, module.hidden_size, device="meta")
    weights = module.state_dict()
    weights["weight_peephole"] = weights.pop("weight_ph").reshape(3, -1)
    cell.load_state_dict(weights, assign=True)
    return cell


gs.register(ForeignPeepholeLSTMCell, peephole_cell)


# -- torchrecurrent: the LSTM of 1997, without a forget gate: the memory is kept whole.


def original_cell(module: OriginalLSTMCell) -> gs.AbstractCell:
    cell = gs.PeepholeLSTMCell(module.input_size, module.hidden_size, variant="NFG", device="meta")
    no_peepholes = module.weight_hh.new_zeros(2, module.hidden_size)
    cell.load_state_dict({**module.state_dict(), "weight_peephole": no_peepholes}, assign=True)
    return cell


gs.register(OriginalLSTMCell, original_cell)


# -- opacus: torch's equations. A packed batch is read with the rows that still go on.


def opacus_cell(module: DPLSTMCell) -> gs.AbstractCell:
    cell = gs.LSTMCell(module.input_size, module.hidden_size, bias=module.bias, device="meta")
    weights = {f"{kind}_{rows}": w for rows in ("ih", "hh") for kind, w in getattr(module, rows).state_dict().items()}
    cell.load_state_dict(weights, assign=True)
    return cell


def read_opacus(args, kwargs, output):
    input, state, *_ = args
    return input, tuple(entry[: len(input)] for entry in state), output


gs.register(DPLSTMCell, opacus_cell, read=read_opacus)


# -- snntorch: spikes first, then the memory, then what torch calls the hidden state: (c, h), not (h, c).


def snntorch_cell(module: SLSTM) -> gs.AbstractCell:
    cell = gs.LSTMCell(module.input_size, module.hidden_size, bias=module.bias, device="meta")
    cell.load_state_dict(module.lstm_cell.state_dict(), assign=True)
    return cell


def read_snntorch(args, kwargs, output):
    input, c, h = args
    _, new_c, new_h = output
    return input, (h, c), (new_h, new_c)


gs.register(SLSTM, snntorch_cell, read=read_snntorch)


# -- ncps: the candidate stands first, and 1 is added to the forget gate in the code.


def in_torchs_order(rows: Tensor) -> Tensor:
    candidate, i, f, o = rows.detach().chunk(4)
    return torch.cat([i, f, candidate, o])


def ncps_cell(module: NcpsLSTMCell) -> gs.AbstractCell:
    cell = gs.LSTMCell(module.input_size, module.hidden_size, device="meta")
    weights = {"weight_ih": module.input_map.weight, "weight_hh": module.recurrent_map.weight}
    weights |= {"bias_ih": module.input_map.bias, "bias_hh": torch.zeros_like(module.input_map.bias)}
    weights = {name: in_torchs_order(weight) for name, weight in weights.items()}
    weights["bias_hh"].chunk(4)[1].fill_(1.0)
    cell.load_state_dict(weights, assign=True)
    return cell


gs.register(NcpsLSTMCell, ncps_cell)


# -- Models made of these cells. A stack that runs whole sequences calls its cells step by step, and those are recorded.


class NcpsNet(nn.Module):
    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.cell = NcpsLSTMCell(width, units)

    def forward(self, x: Tensor) -> None:
        state = 2 * (x.new_zeros(x.shape[1], self.cell.hidden_size),)
        for now in x:
            state = self.cell(now, state)


class SpikingNet(nn.Module):
    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.cell = SLSTM(width, units)

    def forward(self, x: Tensor) -> None:
        c, h = 2 * (x.new_zeros(x.shape[1], self.cell.hidden_size),)
        for now in x:
            _, c, h = self.cell(now, c, h)


MODELS = {
    "torchrecurrent.MGU": MGU(8, 8, num_layers=2),
    "torchrecurrent.PeepholeLSTM": PeepholeLSTM(8, 8),
    "torchrecurrent.OriginalLSTM": OriginalLSTM(8, 8),
    "opacus.DPLSTM": DPLSTM(8, 8),
    "snntorch.SLSTM": SpikingNet(8, 8),
    "ncps.LSTMCell": NcpsNet(8, 8),
}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name, model in MODELS.items():
        with gs.attach(model) as probe:
            model(torch.randn(20, 4, 8))
        for path, node in probe.tree().children.items():
            said = node.attrs
            print(f"{name + '.' + path:35} {said['cell']:20} keeps {said['retention']:15} error {said['parity']:.0e}")
