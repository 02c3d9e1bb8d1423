"""What torch's recurrent modules compute, unrolled in numpy in float64 from the textbook's equations.

Independent of gatescope: row by row, step by step, with the weights by torch's names. Everything is in the caller's
order, (sequence, time, feature), and the backward direction stands on the input's time axis.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import nn

Array = np.ndarray
Step = Callable[[Mapping[str, Array], Array, tuple[Array, ...]], tuple[dict[str, Array], tuple[Array, ...]]]
STATES = ("hidden_state", "cell_state")


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def affine(weights: Mapping[str, Array], which: str, values: Array) -> Array:
    return weights[f"weight_{which}"] @ values + weights.get(f"bias_{which}", 0.0)


def lstm(
    weights: Mapping[str, Array], x: Array, state: tuple[Array, ...]
) -> tuple[dict[str, Array], tuple[Array, ...]]:
    h, c = state
    i, f, g, o = np.split(affine(weights, "ih", x) + affine(weights, "hh", h), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    if "weight_hr" in weights:
        h = weights["weight_hr"] @ h
    signals = {
        "input_gate_preactivation": i,
        "input_gate": sigmoid(i),
        "forget_gate_preactivation": f,
        "forget_gate": sigmoid(f),
        "candidate_preactivation": g,
        "candidate": np.tanh(g),
        "output_gate_preactivation": o,
        "output_gate": sigmoid(o),
        "cell_state": c,
        "hidden_state": h,
    }
    return signals, (h, c)


def gru(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...]) -> tuple[dict[str, Array], tuple[Array, ...]]:
    (h,) = state
    x_r, x_z, x_n = np.split(affine(weights, "ih", x), 3)
    h_r, h_z, h_n = np.split(affine(weights, "hh", h), 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * h_n)
    h = (1 - z) * n + z * h
    signals = {
        "reset_gate_preactivation": x_r + h_r,
        "reset_gate": r,
        "update_gate_preactivation": x_z + h_z,
        "update_gate": z,
        "candidate_recurrent": h_n,
        "candidate_preactivation": x_n + r * h_n,
        "candidate": n,
        "hidden_state": h,
    }
    return signals, (h,)


def rnn(squash: Callable[[Array], Array]) -> Step:
    def step(
        weights: Mapping[str, Array], x: Array, state: tuple[Array, ...]
    ) -> tuple[dict[str, Array], tuple[Array, ...]]:
        a = affine(weights, "ih", x) + affine(weights, "hh", state[0])
        return {"hidden_state_preactivation": a, "hidden_state": squash(a)}, (squash(a),)

    return step


def relu(values: Array) -> Array:
    return np.maximum(values, 0)


def step_of(module: nn.Module) -> Step:
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return lstm
    if isinstance(module, (nn.GRU, nn.GRUCell)):
        return gru
    return rnn(relu if module.nonlinearity == "relu" else np.tanh)


def as_array(tensor: torch.Tensor) -> Array:
    return tensor.detach().double().numpy().copy()


def weights_of(module: nn.Module, suffix: str = "") -> dict[str, Array]:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    found = {name: getattr(module, name + suffix, None) for name in names}
    return {name: as_array(tensor) for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}


def run(
    step: Step, weights: Mapping[str, Array], x: Array, lengths: Sequence[int], initial: Sequence[Array], backward: bool
) -> tuple[dict[str, Array], list[Array]]:
    """One layer in one direction: signals (sequence, time, unit), NaN in padding, and states after the last step."""
    signals: dict[str, Array] = {}
    finals = [np.array(state) for state in initial]
    for row, length in enumerate(lengths):
        state = tuple(entry[row] for entry in initial)
        for time in reversed(range(length)) if backward else range(length):
            values, state = step(weights, x[row, time], state)
            for name, value in values.items():
                signals.setdefault(name, np.full((*x.shape[:2], len(value)), np.nan))[row, time] = value
        for final, entry in zip(finals, state, strict=True):
            final[row] = entry
    return signals, finals


def widths(module: nn.Module) -> list[int]:
    """Width of each state that is carried, the hidden state first."""
    shown = getattr(module, "proj_size", 0) or module.hidden_size
    return [shown, module.hidden_size] if isinstance(module, (nn.LSTM, nn.LSTMCell)) else [shown]


def unroll(
    module: nn.Module,
    x: Array,
    lengths: Sequence[int] | None = None,
    state: Sequence[Array] | None = None,
    masks: Sequence[Array] = (),
) -> dict[str, Array]:
    """All signals of `nn.LSTM`, `nn.GRU` or `nn.RNN`, each (layer, direction, sequence, time, unit).

    `x` is (sequence, time, feature); `state` each (layer * direction, sequence, unit); `masks` multiply what goes from
    one layer to the next, (sequence, time, feature) each. `initial_...` are the states before the first step.
    """
    directions = 2 if module.bidirectional else 1
    lengths = [x.shape[1]] * x.shape[0] if lengths is None else lengths
    slots = module.num_layers * directions
    state = [np.zeros((slots, x.shape[0], width)) for width in widths(module)] if state is None else state
    layers: list[list[dict[str, Array]]] = []
    read = x
    for layer in range(module.num_layers):
        row = []
        for direction, suffix in enumerate(("", "_reverse")[:directions]):
            initial = [entry[layer * directions + direction] for entry in state]
            weights = weights_of(module, f"_l{layer}{suffix}")
            row.append(run(step_of(module), weights, read, lengths, initial, direction == 1)[0])
        layers.append(row)
        read = np.nan_to_num(np.concatenate([signals["hidden_state"] for signals in row], axis=-1))
        if layer < len(masks):
            read = read * masks[layer]
    found = {name: np.stack([np.stack([d[name] for d in row]) for row in layers]) for name in layers[0][0]}
    for name, entry in zip(STATES, state, strict=False):
        found[f"initial_{name}"] = entry.reshape(module.num_layers, directions, *entry.shape[1:])
    return found


def unroll_cell(module: nn.Module, x: Array, state: Sequence[Array] | None = None) -> dict[str, Array]:
    """All signals of `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell` in a loop over (sequence, time, feature)."""
    state = [np.zeros((x.shape[0], width)) for width in widths(module)] if state is None else state
    signals, _ = run(step_of(module), weights_of(module), x, [x.shape[1]] * x.shape[0], state, False)
    found = {name: values[None, None] for name, values in signals.items()}
    return found | {f"initial_{name}": entry[None, None] for name, entry in zip(STATES, state, strict=False)}


def assert_recorded(recording: xr.Dataset, expected: Mapping[str, Array], atol: float) -> None:
    """The recording holds exactly the expected signals, with the expected numbers and NaN in the same places."""
    derived = {"log_retention_sum", "retention_zeros"}
    signals = {name for name, variable in recording.data_vars.items() if "time" in variable.dims} - derived
    assert signals == {name for name in expected if not name.startswith("initial_")}
    for name, values in expected.items():
        np.testing.assert_allclose(recording[name].values, values, rtol=0, atol=atol, err_msg=name)
