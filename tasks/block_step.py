"""What a network of memory blocks does at one symbol: open its gates, remember, predict, carry on.

`z(t) = [x(t), y_c(t-1), gates(t-1) where gates see gates, 1]` is what every gate and cell input sees; of `x`, the
symbol's own place is 1 and all others 0. With f logistic, g = 4 f - 2 and h = 2 f - 1, for cell c of block j:

    in, phi, out = f(w z)      s = phi s(t-1) + in g(w_c z)      y_c = out h(s)      y_k = f(V_k [y_c, x, 1])

The order of every sum is written out, and loops that are vectorised run over independent elements: results do not
depend on the width of a processor's vectors. Cell v of block j stands at `v * blocks + j` in here, so that sums over
the cells of a block are sums of whole rows. Rows of weights are filled up to whole vectors of 8; what is in the
filling is never used.

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
