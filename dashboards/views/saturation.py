"""Page: which gates are stuck open or shut, and which switch?"""

import streamlit as st

from gatescope.dashboards import chooser, results, ways_out
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.saturation import saturation


def show(view: View) -> None:
    result = results.of(view, saturation)
    if isinstance(result, str):
        chooser.nothing("There is nothing to show.", result)
        return
    st.text(str(result.sizes))
    ways_out.show(
        f"saturation-{view.name}",
        code=view.code("result = gs.saturation(recording)", here=True),
        results={"saturation": result},
    )


if __name__ == "__main__":
    chooser.page("Saturation", show, sequence=False, labels=False)
