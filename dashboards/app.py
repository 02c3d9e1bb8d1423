"""The dashboard: `gatescope dashboard FOLDER`, or `streamlit run app.py -- FOLDER ...`. A row in VIEWS is a page."""

import os

import streamlit as st

from gatescope.dashboards import choices

VIEWS = (
    ("views/overview.py", "Overview"),
    ("views/gates.py", "Gates and states"),
    ("views/resets.py", "Resets"),
    ("views/roles.py", "Roles"),
    ("views/saturation.py", "Saturation"),
    ("views/gradient_flow.py", "Gradient flow"),
)

# On narrow screens the labels along the top of a run would lie on each other; they stay under the finger.
LABELLED = ("run-", "raster-", "shares-")  # beginnings of the keys of charts that have such labels
NARROW = ", ".join(f"[class*='st-key-{key}'] .xaxislayer-above .xtick" for key in LABELLED)
STYLE = f"""<style>
.stMainBlockContainer {{padding-top: 3rem; padding-bottom: 3rem}}
@media (max-width: 640px) {{{NARROW} {{display: none}}}}
</style>"""

os.environ.setdefault("MPLBACKEND", "agg")  # pictures are drawn for download, by threads, on no screen
st.set_page_config("gatescope", layout="wide")  # an icon would be fetched from the internet
st.html(STYLE)
page = st.navigation([st.Page(file, title=title, default=file == VIEWS[0][0]) for file, title in VIEWS])
choices.adopt(page.url_path)
page.run()
choices.settle()
