"""What does not cure vanishing gradients: ReLU, spectral radius, orthogonal and identity starts, clipping.

    python examples/what_does_not_cure_vanishing.py [what_does_not_cure_vanishing.png]

Plain RNNs with each of these, beside an LSTM and a GRU, on one axis: how much of a change of the state is left k steps
later, before training and after a few updates on a task that needs the first of 60 inputs at the end, once without and
once with clipping the gradient to length 1. A good start (orthogonal, identity, a lucky radius) holds the gradient for
a while and is lost with the first updates; clipping keeps weights from becoming no numbers, and brings nothing back.
Needs nothing but gatescope; takes under half a minute.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import xarray as xr
from matplotlib.figure import Figure
from torch import Tensor, nn

import gatescope as gs

LAG, UNITS, UPDATES, SEQUENCES, BACK = 60, 24, 40, 16, 100
HORIZONS = (1, 2, 4, 7, *range(10, BACK + 1, 10))


def rnn(nonlinearity: str, radius: float = 1.0, start: str = "random") -> Callable[[], nn.RNN]:
    """A plain RNN; `random` recurrent weights are scaled to the spectral radius, `orthogonal` and `identity` have 1."""

    def make() -> nn.RNN:
        module = nn.RNN(2, UNITS, nonlinearity=nonlinearity)
        weight = module.weight_hh_l0
        with torch.no_grad():
            if start == "orthogonal":
                nn.init.orthogonal_(weight)
            elif start == "identity":
                nn.init.eye_(weight)
            else:
                nn.init.normal_(weight)
                weight *= radius / torch.linalg.eigvals(weight).abs().max()
            for bias in (module.bias_ih_l0, module.bias_hh_l0):
                nn.init.zeros_(bias)
            nn.init.normal_(module.weight_ih_l0, std=0.3)
        return module

    return make


def lstm(bias: float) -> Callable[[], nn.LSTM]:
    def make() -> nn.LSTM:
        module = nn.LSTM(2, UNITS)
        gs.set_forget_bias(module, bias)
        return module

    return make


def gru(bias: float) -> Callable[[], nn.GRU]:
    def make() -> nn.GRU:
        module = nn.GRU(2, UNITS)
        gs.set_forget_bias(module, bias)
        return module

    return make


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "tanh, radius 0.5": rnn("tanh", 0.5),
    "tanh, radius 1.0": rnn("tanh", 1.0),
    "tanh, radius 1.5": rnn("tanh", 1.5),
    "ReLU, radius 0.5": rnn("relu", 0.5),
    "ReLU, radius 1.0": rnn("relu", 1.0),
    "ReLU, radius 1.5": rnn("relu", 1.5),
    "tanh, orthogonal": rnn("tanh", start="orthogonal"),
    "ReLU, identity": rnn("relu", start="identity"),
    "LSTM, bias 1": lstm(1.0),
    "LSTM, bias 4": lstm(4.0),
    "GRU, bias 4": gru(4.0),
}


def batch(steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise and a mark at the first step, whose sign is asked for at the end."""
    x = torch.randn(steps, SEQUENCES, 2, generator=generator)
    sign = (torch.rand(SEQUENCES, generator=generator) < 0.5).float()
    x[:, :, 1] = 0
    x[0, :, 1] = 2 * sign - 1
    return x, sign


def trained(make: Callable[[], nn.Module], clip: float | None) -> tuple[nn.Module, float]:
    """The network after some updates, and its last losses; it stops where its loss is no number any more."""
    torch.manual_seed(0)
    module, head, generator = make(), nn.Linear(UNITS, 1), torch.Generator().manual_seed(2)
    parameters = [*module.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for _ in range(UPDATES):
        x, sign = batch(LAG, generator)
        loss = nn.functional.binary_cross_entropy_with_logits(head(module(x)[0][-1])[:, 0], sign)
        losses.append(float(loss.detach()))
        if not torch.isfinite(loss):
            break
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
    return module, sum(losses[-10:]) / len(losses[-10:])


def flow_of(module: nn.Module) -> xr.Dataset | None:
    """What is left over 100 steps; nothing where the network's weights or states are no numbers any more."""
    if not all(bool(torch.isfinite(weight).all()) for weight in module.parameters()):
        return None
    x, _ = batch(BACK + 40, torch.Generator().manual_seed(3))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* computed NaN or Inf", RuntimeWarning)
        recording = gs.record(module, x[:, :2])
    return None if "nonfinite" in recording.attrs else gs.gradient_flow(recording, horizons=HORIZONS)


def left(flow: xr.Dataset | None) -> str:
    if flow is None:
        return "no number"
    here = {"norm": "frobenius", "block": flow.attrs["judged_block"]}
    norms = flow.state_norm.sel({**here, "horizon": BACK, "quantile": 0.5}) - flow.norm_at_zero.sel(here)
    value = float(norms.squeeze())
    return "0" if value == -float("inf") else f"10^{value:.1f}"


def main() -> None:
    columns: dict[str, dict[str, xr.Dataset]] = {"untrained": {}, "trained": {}, "trained with clipping": {}}
    titles = (f"left after {BACK} steps", "untrained", "trained", "(loss)", "clipped", "(loss)")
    print("{:20}{:>12}{:>12}{:>9}{:>12}{:>9}".format(*titles))
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        start, (free, loss), (held, held_loss) = make(), trained(make, None), trained(make, 1.0)
        flows = [flow_of(module) for module in (start, free, held)]
        for column, flow in zip(columns.values(), flows, strict=True):
            if flow is not None:
                column[name] = flow
        begun, ended, clipped = map(left, flows)
        print(f"{name:20}{begun:>12}{ended:>12}{loss:9.2f}{clipped:>12}{held_loss:9.2f}", flush=True)
    print("loss: the mean of the last ten updates; 0.69 is chance, and so few updates are not enough to leave it")
    draw(columns, Path(sys.argv[1] if len(sys.argv) > 1 else "what_does_not_cure_vanishing.png"))


def draw(columns: dict[str, dict[str, xr.Dataset]], path: Path) -> None:
    figure = Figure(figsize=(14, 4.8), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (title, flows) in zip(axes, columns.items(), strict=True):
        gs.plot_gradient_flow(flows, lowest=-16, ax=ax)
        ax.set(title=title, xlim=(0, BACK))
        ax.get_legend().remove()
        for band in list(ax.collections):  # eleven medians are enough
            band.remove()
        for line in ax.get_lines():
            if str(line.get_label()) in NETWORKS:
                line.set(color=style(str(line.get_label()))[0], linestyle=style(str(line.get_label()))[1])
    for ax in axes[1:]:
        ax.set_ylabel("")
    lines = {str(line.get_label()): line for line in axes[0].get_lines()}
    figure.legend(handles=[lines[name] for name in NETWORKS if name in lines], loc="outside right center", fontsize=9)
    figure.savefig(path, dpi=100)
    print(f"wrote {path}")


def style(name: str) -> tuple[str, str]:
    """A colour for each kind of network, a line for each start: the same in every panel."""
    kind, start = name.split(", ")
    lines = {"radius 0.5": ":", "radius 1.0": "--", "radius 1.5": "-.", "bias 1": "--"}
    return {"tanh": "#0072b2", "ReLU": "#d55e00", "LSTM": "#009e73", "GRU": "#cc79a7"}[kind], lines.get(start, "-")


if __name__ == "__main__":
    main()
