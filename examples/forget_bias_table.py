"""The textbook's table, measured: how much of a gradient is left after 100 steps with a forget bias of 0, 1 and 2.

    python examples/forget_bias_table.py [forget_bias_table.png]

The textbook multiplies: an LSTM keeps sigma(b) of its memory at each step, so sigma(b)^100 after 100; a plain RNN whose
weights shrink by 0.9 and whose tanh has slope 0.5 is left with 0.45^100. Here are modules of torch with random weights
on random input: what their forget gates really kept, what is left by all paths together, and the true gradient of a
loss on the last step. Needs nothing but gatescope; takes a few seconds.
"""

import sys
from pathlib import Path

import torch
import xarray as xr
from matplotlib.figure import Figure
from torch import nn

import gatescope as gs

STEPS, BACK, WIDTH, UNITS = 160, 100, 8, 32


def lstm(bias: float) -> nn.LSTM:
    torch.manual_seed(0)
    module = nn.LSTM(WIDTH, UNITS)
    gs.set_forget_bias(module, bias)  # the sum of torch's two vectors
    return module


def plain_rnn() -> nn.RNN:
    """Recurrent weights of 0.9 times a rotation, and inputs that bring tanh's slope to about a half."""
    torch.manual_seed(0)
    module = nn.RNN(WIDTH, UNITS, bias=False)
    nn.init.orthogonal_(module.weight_hh_l0, 0.9)
    nn.init.normal_(module.weight_ih_l0, std=0.4)
    return module


def last_step(result: tuple[torch.Tensor, object]) -> torch.Tensor:
    return result[0][-1].sum()


def left_after(flow: xr.Dataset) -> float:
    """log10 of what is left by all paths together, relative to where it began."""
    here = {"norm": "frobenius", "block": flow.attrs["judged_block"]}
    norms = flow.state_norm.sel({**here, "horizon": BACK, "quantile": 0.5})
    return float(norms.squeeze() - flow.norm_at_zero.sel(here))


def true_gradient(module: nn.Module, x: torch.Tensor, state: str) -> float:
    """log10 of dL/d(state) 100 steps before the loss, relative to that at the last step."""
    profile = gs.loss_gradient(module, x, last_step).profile.sel(quantity=state, quantile=0.5)
    return float((profile.sel(distance_step=BACK) - profile.sel(distance_step=0)).squeeze())


def draw(flows: dict[str, xr.Dataset], path: Path) -> None:
    figure = Figure(figsize=(8.6, 5), layout="constrained")
    ax = gs.plot_gradient_flow(flows, lowest=-36, ax=figure.subplots())
    ax.set_title("What a forget bias does to the gradient: three untrained LSTMs and a plain RNN")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def main() -> None:
    x = torch.randn(STEPS, 4, WIDTH, generator=torch.Generator().manual_seed(1))
    flows = {}
    print(f"what is left after {BACK} steps      textbook   gates kept   all paths   true gradient")
    for bias in (0, 1, 2):
        module = lstm(bias)
        recording = gs.record(module, x)
        flow = flows[f"LSTM, forget bias {bias}"] = gs.gradient_flow(recording)
        kept = gs.forget_bias(module, recording, horizons=[BACK])
        textbook = float(kept.survival.mean())
        gates = float(kept.cell_path.sel(quantile=0.5).median())
        numbers = (textbook, gates, left_after(flow), true_gradient(module, x, "cell_state"))
        print(f"LSTM, forget bias {bias}          " + "".join(f"   10^{number:6.1f}" for number in numbers))
    rnn = plain_rnn()
    recording = gs.record(rnn, x)
    flow = flows["plain RNN"] = gs.gradient_flow(recording)
    slope = float((1 - recording.hidden_state**2).mean())
    textbook = torch.log10(torch.tensor(0.45)).item() * BACK
    numbers = (left_after(flow), true_gradient(rnn, x, "hidden_state"))
    print(
        f"plain RNN, 0.9 x slope {slope:.2f}     {f'   10^{textbook:6.1f}'}            -"
        + "".join(f"   10^{number:6.1f}" for number in numbers)
    )
    draw(flows, Path(sys.argv[1] if len(sys.argv) > 1 else "forget_bias_table.png"))


if __name__ == "__main__":
    main()
