"""Page: what does each unit and each memory block do?"""

import streamlit as st

from gatescope.dashboards import chooser, results, ways_out
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.roles import roles


def show(view: View) -> None:
    result = results.of(view, roles)
    if isinstance(result, str):
        chooser.nothing("There is nothing to show.", result)
        return
    st.text(str(result.sizes))
    ways_out.show(
        f"roles-{view.name}", code=view.code("result = gs.roles(recording)", here=True), results={"roles": result}
    )


if __name__ == "__main__":
    chooser.page("Roles", show, sequence=False, labels=False)
