"""The README's picture: a trained diacritizer's backward forget gates over one sentence, and at what they shut.

    python examples/readme_picture.py [docs/pictures/diacritizer.png]

Needs the examples' models: pip install 'gatescope[examples]'. Takes a few seconds and always draws the same.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from gatescope.demo import load_model, record_texts, require_model
from gatescope.demo_figures import draw_characters, draw_gates, pictured
from gatescope.demo_findings import findings
from gatescope.demo_sentences import TEXTS

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "diacritizer.png"


def draw() -> Figure:
    recording = record_texts(load_model(), TEXTS)
    found = findings(recording)
    layer, direction = found.there[0].layer, found.there[0].direction

    figure = Figure(figsize=(12.8, 7.4), layout="constrained")
    above, below = figure.subfigures(2, height_ratios=(1.35, 1))
    ax = draw_gates(above.subplots(), recording, found.there, pictured(recording))
    ax.set_title(
        "An Arabic diacritizer reads a sentence (here from left to right, ␣ = space): forget gates of the "
        f"{direction} LSTM,\nlayer {layer}. These {len(found.there)} units, chosen on other sentences, shut (dark) at "
        "every space, where words end.",
        fontsize=11,
    )
    panels = below.subplots(1, found.auc.sizes["direction"], sharey=True)
    for panel, way in zip(panels, found.auc["direction"].to_numpy(), strict=True):
        draw_characters(panel, found.auc, layer, str(way))
    panels[0].set_ylabel("units that shut (up)\nor open (down)")
    panels[0].legend(loc="upper right", fontsize=9)
    below.suptitle(
        "Is that special? Of 256 units, how many tell a character from all others by their forget gate (AUC > 0.95)",
        fontsize=11,
    )
    return figure


def main() -> None:
    try:
        require_model()
    except ModuleNotFoundError as error:
        print(f"skipped: {error}")
        return
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    draw().savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
