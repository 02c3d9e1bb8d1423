"""How much of a gradient is left: the LSTM of 1997, one with a forget gate, a GRU and a plain RNN, on one axis.

    python examples/gradient_flow_picture.py [docs/pictures/gradient_flow.png]

Untrained networks with torch's or the paper's first weights read the same random input. Below, what is left in the
second one when a path is cut at every step. Takes a few seconds and always draws the same.
"""

import sys
from pathlib import Path

import torch
import xarray as xr
from matplotlib.figure import Figure
from torch import nn

import gatescope as gs

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "gradient_flow.png"
INPUTS, UNITS, STEPS, SEQUENCES = 8, 32, 200, 2


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    blocks = {"blocks": UNITS // 2, "size": 2}
    forgetting = nn.LSTM(INPUTS, UNITS)
    gs.set_forget_bias(forgetting, 2.0)
    return {
        "LSTM of 1997, no forget gate": gs.Recurrent([[gs.MemoryBlockCell(INPUTS, forget="none", **blocks)]]),
        "LSTM, forget bias 2": forgetting,
        "LSTM as torch starts it": nn.LSTM(INPUTS, UNITS),
        "GRU as torch starts it": nn.GRU(INPUTS, UNITS),
        "plain RNN": nn.RNN(INPUTS, UNITS),
    }


def results() -> dict[str, xr.Dataset]:
    found = {}
    for label, network in networks().items():
        inputs = torch.randn(STEPS, SEQUENCES, INPUTS, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            found[label] = gs.gradient_flow(gs.record(network, inputs))
    return found


def draw(found: dict[str, xr.Dataset]) -> Figure:
    figure = Figure(figsize=(11.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    gs.plot_gradient_flow(found, ax=left)
    gs.plot_knockout(found["LSTM, forget bias 2"], ax=right)
    right.set_title("Which path carries it: LSTM, forget bias 2")
    return figure


def main() -> None:
    found = results()
    for label, result in found.items():
        half, verdict = result["half_life"].item(), result["verdict"].item()
        print(f"{label:<30} half is left after {half:6.1f} steps, {result['slope'].item():+.3f} per step: {verdict}")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    draw(found).savefig(path, dpi=100)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
