"""Page: what is in this recording, is it sound, and what is there to find?"""

import streamlit as st

from gatescope.dashboards import chooser, summary
from gatescope.dashboards.chooser import View


def show(view: View) -> None:
    st.text(" · ".join(summary.certificate(view.recording)))
    for remark in summary.remarks(view.recording):
        st.text(f"⚠ {remark}")
    chooser.link(st, "gates", "Gates and states")


if __name__ == "__main__":
    chooser.page("Overview", show, sequence=False, labels=False)
