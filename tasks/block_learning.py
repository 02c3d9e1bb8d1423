"""How a network of memory blocks learns at one symbol: truncated backpropagation and truncated real-time recurrence.

Errors do not flow back through what gates and cell inputs saw, but within a cell they flow for ever, because the
partials P carry the derivative of the state forward through time. With E = 1/2 sum_k e_k^2 and the letters of
`block_step`:

    e_k = t_k - y_k                   d_k = e_k y_k (1 - y_k)         V     += alpha d_k [y_c, x, 1]
    E_c = sum_k V_kc d_k              e_s = out h'(s) E_c             w_out += alpha out (1 - out) sum_v h(s_v) E_v z
    P_c   <- phi P_c   + g'(net_c) in z                               w_c   += alpha e_s P_c      (cells have no bias)
    P_in  <- phi P_in  + g(net_c) in (1 - in) z                       w_in  += alpha sum_v e_s P_in
    P_phi <- phi P_phi + s(t-1) phi (1 - phi) z                       w_phi += alpha sum_v e_s P_phi

E_c is taken before V changes. When a cell forgets, it also forgets the credit for what it held.

References
----------
Hochreiter and Schmidhuber (1997), Neural Computation 9(8), 1735-1780. Gers, Schmidhuber and Cummins (2000), Neural
Computation 12(10), doi 10.1162/089976600300015015.
"""

from .block_step import Floats, Network, Shape, source_count
from .compiled import inlined


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
    for weights in (network.weights, network.readout):
        for row in range(weights.shape[0]):
            for column in range(weights.shape[1]):
                weights[row, column] *= keep
