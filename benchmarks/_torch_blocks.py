"""The paper's truncated learning in torch, symbol by symbol, for one network or for many in lockstep."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gatescope.tasks.wiring import Wiring


class TorchBlocks:
    """Networks of 1999 with all gates, a shortcut and output biases; the first dimension is always the network."""

    def __init__(self, weights: Mapping[str, np.ndarray], wiring: Wiring, networks: int) -> None:
        self.wiring, gates = wiring, 2 * wiring.blocks
        rows = gates + wiring.units + wiring.blocks
        bias = torch.zeros(rows, dtype=torch.float64)
        given = torch.from_numpy(weights["cell.bias"])
        bias[:gates], bias[gates + wiring.units :] = given[:gates], given[gates:]
        seen = [torch.from_numpy(weights[name]) for name in ("cell.weight_ih", "cell.weight_hh")]
        shown = [torch.from_numpy(weights["readout.weight"]), torch.from_numpy(weights["readout.bias"])[:, None]]
        self.w = torch.cat([*seen, bias[:, None]], 1).repeat(networks, 1, 1)
        self.v = torch.cat(shown, 1).repeat(networks, 1, 1)
        self.y = torch.zeros(networks, wiring.units, dtype=torch.float64)
        self.s = torch.zeros_like(self.y)
        self.partials = torch.zeros(3, networks, wiring.units, self.w.shape[2], dtype=torch.float64)
        self.one = torch.ones(networks, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        J, S, U = self.wiring.blocks, self.wiring.size, self.wiring.units  # noqa: N806
        self.z, self.before = torch.cat([x, self.y, self.one], 1), self.s
        opened = torch.bmm(self.w, self.z[:, :, None])[:, :, 0].sigmoid()
        self.i, self.phi, self.f, self.o = opened.split([J, J, U, J], 1)
        i, phi, o = (gate.repeat_interleave(S, 1) for gate in (self.i, self.phi, self.o))
        self.s = phi * self.s + i * (4 * self.f - 2)
        self.h = self.s.sigmoid()
        self.y = o * (2 * self.h - 1)
        self.read = torch.cat([self.y, x, self.one], 1)
        return torch.bmm(self.v, self.read[:, :, None])[:, :, 0].sigmoid()

    def learn(self, shown: Tensor, target: Tensor, alpha: float) -> None:
        J, S, U = self.wiring.blocks, self.wiring.size, self.wiring.units  # noqa: N806
        i, phi, o = (gate.repeat_interleave(S, 1) for gate in (self.i, self.phi, self.o))
        d = (target - shown) * shown * (1 - shown)
        at_cells = torch.bmm(d[:, None], self.v[:, :, :U])[:, 0]
        e = o * 2 * self.h * (1 - self.h) * at_cells
        gain = torch.stack(
            [(4 * self.f - 2) * i * (1 - i), self.before * phi * (1 - phi), 4 * self.f * (1 - self.f) * i]
        )
        self.partials = phi[None, :, :, None] * self.partials + gain[..., None] * self.z[:, None]
        moved = e[None, :, :, None] * self.partials
        gates = moved[:2].unflatten(2, (J, S)).sum(3)
        at_gate = self.o * (1 - self.o) * ((2 * self.h - 1) * at_cells).unflatten(1, (J, S)).sum(2)
        cells = torch.cat([moved[2][:, :, :-1], torch.zeros_like(moved[2][:, :, :1])], 2)
        self.w += alpha * torch.cat([gates[0], gates[1], cells, at_gate[:, :, None] * self.z[:, None]], 1)
        self.v += alpha * d[:, :, None] * self.read[:, None]
