"""The dashboard: `gatescope dashboard FOLDER`, or `streamlit run app.py -- FOLDER ...`. A row in VIEWS is a page."""

import streamlit as st

from gatescope.dashboards import choices

VIEWS = (("views/gates.py", "Gates and states"),)

# On narrow screens the labels along a heatmap would lie on each other; they stay under the finger.
STYLE = """<style>
.stMainBlockContainer {padding-top: 3rem; padding-bottom: 3rem}
@media (max-width: 640px) {.stPlotlyChart .xaxislayer-above .xtick {display: none}}
</style>"""

st.set_page_config("gatescope", layout="wide")  # an icon would be fetched from the internet
st.html(STYLE)
page = st.navigation([st.Page(file, title=title, default=file == VIEWS[0][0]) for file, title in VIEWS])
choices.adopt()
page.run()
choices.settle()
