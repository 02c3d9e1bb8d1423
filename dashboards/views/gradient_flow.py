"""Page: how much gradient survives k steps back, and by which path?"""

import streamlit as st

from gatescope.dashboards import chooser, results, ways_out
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.gradient_flow import gradient_flow


def show(view: View) -> None:
    result = results.of(view, gradient_flow)
    if isinstance(result, str):
        chooser.nothing("There is nothing to show.", result)
        return
    st.text(str(result.sizes))
    ways_out.show(
        f"gradient_flow-{view.name}",
        code=view.code("result = gs.gradient_flow(recording)", here=True),
        results={"gradient_flow": result},
    )


if __name__ == "__main__":
    chooser.page("Gradient flow", show, sequence=False, labels=False)
