"""What a network of memory blocks does at one symbol: predict, learn, carry on. Letters are those of the papers.

`z(t) = [x(t), y_c(t-1), gates(t-1) where gates see gates, 1]` is what every gate and cell input sees; of `x`, the
symbol's own place is 1 and all others 0. Learning is truncated: errors do not flow back through what gates and cell
inputs saw, but within a cell they flow for ever, because the partials P carry the derivative of the state forward
through time. For block j, cell v:

    s = phi s(t-1) + in g(net_c)      y_c = out h(s)             y_k = f(V_k [y_c, x, 1])
    f logistic, g = 4 f - 2, h = 2 f - 1                         e_k = t_k - y_k
    d_k = e_k y_k (1 - y_k)           E_c = sum_k V_kc d_k       e_s = out h'(s) E_c
    P_c   <- phi P_c   + g'(net_c) in z                   w_c   += alpha e_s P_c         (no bias)
    P_in  <- phi P_in  + g(net_c) in (1 - in) z           w_in  += alpha sum_v e_s P_in
    P_phi <- phi P_phi + s(t-1) phi (1 - phi) z           w_phi += alpha sum_v e_s P_phi
    w_out += alpha out (1 - out) sum_v h(s_v) E_v z       V     += alpha d_k [y_c, x, 1]

The order of every sum is written out, and loops that are vectorised run over independent elements: results do not
depend on the width of a processor's vectors. Cells stand as `v * blocks + j` in here, so that sums over the cells of a
block are sums of whole rows; rows of weights are filled up to whole vectors of 8, whose content is never used.

References
----------
Hochreiter and Schmidhuber (1997), Neural Computation 9(8), 1735-1780. Gers, Schmidhuber and Cummins (2000), Neural
Computation 12(10), doi 10.1162/089976600300015015.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import inlined
from .exponential import logistic

Floats = NDArray[np.float64]
NEAR = 0.49
"""An output is right when it is nearer than this to its target."""


class Shape(NamedTuple):
    """Sizes and parts; constants of the compiled code."""

    inputs: int
    outputs: int
    blocks: int
    size: int
    input_gate: bool
    learned_forget: bool
    output_gate: bool
    gates_see_gates: bool
    shortcut: bool
    output_bias: bool


class Network(NamedTuple):
    """Weights, what is carried from step to step, and what one step computes."""

    weights: Floats  # (source, row): input gates, forget gates, output gates, cell inputs; the last source is the bias
    readout: Floats  # (cell, input, bias; output)
    decay: float  # what multiplies the state where no forget gate does
    sources: Floats  # z
    state: Floats  # s
    candidate_partials: Floats  # P_c (source, cell)
    input_partials: Floats  # P_in (source, cell)
    forget_partials: Floats  # P_phi (source, cell)
    before: Floats  # s(t-1)
    rows: Floats  # in, phi, out and f(net_c), in the order of the weights' rows
    squashed: Floats  # f(s)
    hidden: Floats  # y_c
    outputs: Floats  # y_k
    error: Floats  # d_k
    gate_error: Floats  # (block,) at output gates
    state_error: Floats  # e_s
    steps: Floats  # (3, cell): what each kind of partial gains per unit of z
    keep: Floats  # (cell,) phi


@inlined
def filled(size: int) -> int:
    """The size in whole vectors of 8."""
    return (size + 7) // 8 * 8


@inlined
def row_count(shape: Shape) -> int:
    return shape.blocks * (3 + shape.size)


@inlined
def source_count(shape: Shape) -> int:
    """How many entries z has."""
    gates = int(shape.input_gate) + int(shape.learned_forget) + int(shape.output_gate)
    seen = gates * shape.blocks if shape.gates_see_gates else 0
    return shape.inputs + shape.blocks * shape.size + seen + 1


@inlined
def readout_count(shape: Shape) -> int:
    """How many entries the outputs may see; where there is no shortcut, the inputs' place stays 0."""
    return shape.blocks * shape.size + shape.inputs + 1


@inlined
def build(weights: Floats, readout: Floats, decay: float, shape: Shape) -> Network:
    """A network at rest around these weights, which learning changes in place."""
    cells, sources = shape.blocks * shape.size, source_count(shape)
    network = Network(
        weights,
        readout,
        decay,
        np.zeros(sources),
        np.zeros(cells),
        np.zeros((sources, cells)),
        np.zeros((sources, cells)),
        np.zeros((sources, cells)),
        np.zeros(cells),
        np.zeros(filled(row_count(shape))),
        np.zeros(cells),
        np.zeros(cells),
        np.zeros(filled(shape.outputs)),
        np.zeros(shape.outputs),
        np.zeros(shape.blocks),
        np.zeros(cells),
        np.zeros((3, cells)),
        np.zeros(cells),
    )
    network.sources[sources - 1] = 1.0
    return network


@inlined
def clear(network: Network) -> None:
    """Back to rest: state, partials and what the next step would see of this one are 0."""
    network.sources[:-1] = 0.0
    network.state[:] = 0.0
    network.candidate_partials[:] = 0.0
    network.input_partials[:] = 0.0
    network.forget_partials[:] = 0.0


@inlined
def open_gates(network: Network, shape: Shape, symbol: int) -> None:
    """Gates and squashed cell inputs of this step; a missing gate is constant."""
    w, z, a = network.weights, network.sources, network.rows
    J, rows = shape.blocks, filled(row_count(shape))  # noqa: N806
    for r in range(rows):
        a[r] = w[symbol, r]
    for c in range(shape.inputs, source_count(shape)):
        for r in range(rows):
            a[r] += z[c] * w[c, r]
    for r in range(rows):
        a[r] = logistic(a[r])
    for j in range(J):
        if not shape.input_gate:
            a[j] = 1.0
        if not shape.learned_forget:
            a[J + j] = network.decay
        if not shape.output_gate:
            a[2 * J + j] = 1.0


@inlined
def remember(network: Network, shape: Shape) -> None:
    """The new state and what the cells show of it."""
    a, s, h, y = network.rows, network.state, network.squashed, network.hidden
    J, cells = shape.blocks, shape.blocks * shape.size  # noqa: N806
    for v in range(shape.size):
        for j in range(J):
            c = v * J + j
            network.before[c] = s[c]
            s[c] = a[J + j] * s[c] + a[j] * (4.0 * a[3 * J + c] - 2.0)
    for c in range(cells):
        h[c] = logistic(s[c])
    for v in range(shape.size):
        for j in range(J):
            c = v * J + j
            y[c] = a[2 * J + j] * (2.0 * h[c] - 1.0)


@inlined
def show(network: Network, shape: Shape, symbol: int) -> None:
    """The outputs."""
    V, y, shown = network.readout, network.hidden, network.outputs  # noqa: N806
    cells, outputs = shape.blocks * shape.size, filled(shape.outputs)
    for k in range(outputs):
        shown[k] = 0.0
    if shape.shortcut:
        for k in range(outputs):
            shown[k] = V[cells + symbol, k]
    for c in range(cells):
        for k in range(outputs):
            shown[k] += y[c] * V[c, k]
    if shape.output_bias:
        for k in range(outputs):
            shown[k] += V[cells + shape.inputs, k]
    for k in range(outputs):
        shown[k] = logistic(shown[k])


@inlined
def forward(network: Network, shape: Shape, symbol: int) -> None:
    """One step: the symbol comes in, `outputs` says which symbols can come next."""
    open_gates(network, shape, symbol)
    remember(network, shape)
    show(network, shape, symbol)


@inlined
def all_near(network: Network, shape: Shape, target: Floats) -> bool:
    """Whether every output is within 0.49 of its target; NaN is not."""
    right = True
    for k in range(shape.outputs):
        right &= abs(target[k] - network.outputs[k]) < NEAR
    return right


@inlined
def most_active(network: Network, shape: Shape, target: Floats) -> bool:
    """Whether every output whose target is 1 is above all others."""
    lowest, highest = np.inf, -np.inf
    for k in range(shape.outputs):
        shown = network.outputs[k]
        if target[k] > 0.5:
            lowest = shown if shown < lowest else lowest
        else:
            highest = shown if shown > highest else highest
    return lowest > highest


@inlined
def carry(network: Network, shape: Shape) -> None:
    """What the next step sees of this one: cell outputs and, where gates see gates, all gates."""
    z, a = network.sources, network.rows
    J, at = shape.blocks, shape.inputs  # noqa: N806
    for c in range(J * shape.size):
        z[at + c] = network.hidden[c]
    if shape.gates_see_gates:
        at += J * shape.size
        for kind in range(3):
            if (shape.input_gate, shape.learned_forget, shape.output_gate)[kind]:
                for j in range(J):
                    z[at + j] = a[kind * J + j]
                at += J


@inlined
def learn(network: Network, shape: Shape, symbol: int, target: Floats, alpha: float) -> None:
    """One update of all weights after `forward`; z still holds what that step saw."""
    z = network.sources
    z[symbol] = 1.0
    blame_outputs(network, shape, target)
    learn_outputs(network, shape, symbol, alpha)
    blame_cells(network, shape, alpha)
    learn_candidates(network, shape)
    if shape.input_gate:
        learn_gate(network, shape, 0, network.input_partials)
    if shape.learned_forget:
        learn_gate(network, shape, 1, network.forget_partials)
    if shape.output_gate:
        learn_output_gate(network, shape)
    z[symbol] = 0.0


@inlined
def blame_outputs(network: Network, shape: Shape, target: Floats) -> None:
    """Errors at the outputs, d_k, and what they say of the cells, E_c."""
    V, d, E = network.readout, network.error, network.state_error  # noqa: N806
    for k in range(shape.outputs):
        shown = network.outputs[k]
        d[k] = (target[k] - shown) * shown * (1.0 - shown)
    for c in range(shape.blocks * shape.size):
        total = 0.0
        for k in range(shape.outputs):
            total += V[c, k] * d[k]
        E[c] = total


@inlined
def learn_outputs(network: Network, shape: Shape, symbol: int, alpha: float) -> None:
    """Weights of the outputs."""
    V, d, y = network.readout, network.error, network.hidden  # noqa: N806
    cells = shape.blocks * shape.size
    for k in range(shape.outputs):
        d[k] *= alpha
    for c in range(cells):
        for k in range(shape.outputs):
            V[c, k] += d[k] * y[c]
    if shape.shortcut:
        for k in range(shape.outputs):
            V[cells + symbol, k] += d[k]
    if shape.output_bias:
        for k in range(shape.outputs):
            V[cells + shape.inputs, k] += d[k]


@inlined
def blame_cells(network: Network, shape: Shape, alpha: float) -> None:
    """Errors at output gates and states, both times alpha, and what the partials gain per unit of z."""
    a, h, e, at_gate, gain = network.rows, network.squashed, network.state_error, network.gate_error, network.steps
    J = shape.blocks  # noqa: N806
    for j in range(J):
        at_gate[j] = 0.0
    for v in range(shape.size):
        for j in range(J):
            c = v * J + j
            at_gate[j] += (2.0 * h[c] - 1.0) * e[c]
    for j in range(J):
        out = a[2 * J + j]
        at_gate[j] *= alpha * (out * (1.0 - out))
    for v in range(shape.size):
        for j in range(J):
            c = v * J + j
            opening, phi, out, f = a[j], a[J + j], a[2 * J + j], a[3 * J + c]
            e[c] = alpha * (out * (2.0 * h[c] * (1.0 - h[c])) * e[c])
            gain[0, c] = (4.0 * f - 2.0) * (opening * (1.0 - opening))
            gain[1, c] = network.before[c] * (phi * (1.0 - phi))
            gain[2, c] = 4.0 * f * (1.0 - f) * opening
            network.keep[c] = phi


@inlined
def learn_candidates(network: Network, shape: Shape) -> None:
    """Partials and weights of the cell inputs, which have no bias."""
    w, z, P, e = network.weights, network.sources, network.candidate_partials, network.state_error  # noqa: N806
    gain, keep = network.steps, network.keep
    first, cells = 3 * shape.blocks, shape.blocks * shape.size
    for c in range(source_count(shape) - 1):
        for u in range(cells):
            P[c, u] = keep[u] * P[c, u] + gain[2, u] * z[c]
            w[c, first + u] += e[u] * P[c, u]


@inlined
def learn_gate(network: Network, shape: Shape, kind: int, P: Floats) -> None:  # noqa: N803
    """Partials and weights of the input gates (kind 0) or forget gates (kind 1); cells of a block share them."""
    w, z, e, gain, keep = network.weights, network.sources, network.state_error, network.steps, network.keep
    J, cells = shape.blocks, shape.blocks * shape.size  # noqa: N806
    for c in range(source_count(shape)):
        for u in range(cells):
            P[c, u] = keep[u] * P[c, u] + gain[kind, u] * z[c]
        for v in range(shape.size):
            for j in range(J):
                w[c, kind * J + j] += e[v * J + j] * P[c, v * J + j]


@inlined
def learn_output_gate(network: Network, shape: Shape) -> None:
    """Weights of the output gates, which need no partials."""
    w, z, J = network.weights, network.sources, shape.blocks  # noqa: N806
    for c in range(source_count(shape)):
        for j in range(J):
            w[c, 2 * J + j] += network.gate_error[j] * z[c]


@inlined
def shrink(network: Network, keep: float) -> None:
    """Weight decay: every weight, biases too, is multiplied by `keep`."""
    network.weights[:] *= keep
    network.readout[:] *= keep
