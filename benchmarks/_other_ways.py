"""Other ways to get the same signals: a loop of cells written by hand, and Opacus' layers with hooks.

Each takes a torch module and its input (time, sequence, feature) and returns name -> (layer, direction, time, sequence,
unit), as a user would want it. The loop, run in float64, is also the reference for errors.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

Signals = dict[str, Tensor]

NAMES = {
    "LSTM": ("input_gate", "forget_gate", "candidate", "output_gate", "cell_state", "hidden_state"),
    "GRU": ("reset_gate", "update_gate", "candidate_recurrent", "candidate", "hidden_state"),
}
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def gates(mode: str, from_x: Tensor, from_h: Tensor) -> list[Tensor]:
    """Gates and candidate of an LSTM or GRU, in the order of their names; of any number of steps."""
    if mode == "LSTM":
        i, f, g, o = (from_x + from_h).chunk(4, -1)
        return [i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()]
    x_r, x_z, x_n = from_x.chunk(3, -1)
    h_r, h_z, h_n = from_h.chunk(3, -1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    return [r, z, h_n, (x_n + r * h_n).tanh()]


def step(mode: str, from_x: Tensor, from_h: Tensor, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Gates of one step and the new state, the hidden state last."""
    if mode == "LSTM":
        i, f, g, o = found = gates(mode, from_x, from_h)
        c = f * state[0] + i * g
        return found, [c, o * c.tanh()]
    _, z, _, n = found = gates(mode, from_x, from_h)
    return found, [(1 - z) * n + z * state[0]]


def ends(module: nn.RNNBase) -> list[list[str]]:
    """[layer][direction], how torch ends the names of the weights."""
    directions = ("", "_reverse")[: 2 if module.bidirectional else 1]
    return [[f"l{layer}{direction}" for direction in directions] for layer in range(module.num_layers)]


def stacked(layers: list[list[list[Tensor]]], mode: str) -> Signals:
    """[layer][direction][signal] to one tensor per signal."""
    return {
        name: torch.stack([torch.stack([direction[place] for direction in layer]) for layer in layers])
        for place, name in enumerate(NAMES[mode])
    }


def loop_of_cells(module: nn.RNNBase, x: Tensor) -> Signals:
    """The equations step by step in Python; only the input's product is taken out of the loop."""
    layers = []
    for layer in ends(module):
        layers.append([run_direction(module, x, end) for end in layer])
        x = torch.cat([signals[-1] for signals in layers[-1]], -1)
    return stacked(layers, module.mode)


def run_direction(module: nn.RNNBase, x: Tensor, end: str) -> list[Tensor]:
    weight_ih, weight_hh, bias_ih, bias_hh = (getattr(module, f"{name}_{end}") for name in WEIGHTS)
    from_x = linear(x, weight_ih, bias_ih)
    state = [x.new_zeros(x.shape[1], module.hidden_size) for _ in range(2 if module.mode == "LSTM" else 1)]
    order = slice(None, None, -1 if end.endswith("reverse") else 1)
    seen = []
    for now in from_x.unbind()[order]:
        found, state = step(module.mode, now, linear(state[-1], weight_hh, bias_hh), state)
        seen.append([*found, *state])
    return [torch.stack(values) for values in zip(*seen[order], strict=True)]


def opacus_twin(module: nn.RNNBase) -> nn.Module:
    """Opacus' open layer with the same weights."""
    from opacus import layers

    sizes = (module.input_size, module.hidden_size, module.num_layers)
    twin: nn.Module = getattr(layers, f"DP{module.mode}")(*sizes, bidirectional=module.bidirectional)
    twin.load_state_dict(module.state_dict())
    return twin.eval()


def opacus_with_hooks(twin: nn.Module, module: nn.RNNBase, x: Tensor) -> Signals:
    """Hooks keep what the products and cells of Opacus' layer compute; the gates follow at the end, all at once."""
    seen: dict[str, list[list]] = {}
    handles = []
    for end in (end for layer in ends(module) for end in layer):
        cell, seen[end] = getattr(twin, end), [[], [], []]
        for part, kept in zip((cell.ih, cell.hh, cell), seen[end], strict=True):
            handles.append(part.register_forward_hook(lambda part, args, output, kept=kept: kept.append(output)))
    twin(x)
    for handle in handles:
        handle.remove()
    return stacked([[hooked(module.mode, seen[end], end) for end in layer] for layer in ends(module)], module.mode)


def hooked(mode: str, seen: list[list], end: str) -> list[Tensor]:
    """The signals of one direction from what its two products and its cell have put out at each step."""
    order = slice(None, None, -1 if end.endswith("reverse") else 1)
    from_x, from_h = (torch.stack(products[order]) for products in seen[:2])
    states = list(zip(*seen[2][order], strict=True)) if mode == "LSTM" else [seen[2][order]]
    return [
        *gates(mode, from_x, from_h),
        *(torch.stack(state) for state in reversed(states)),
    ]  # the cell hands out h, c
