"""`python -m gatescope.dashboards.serve ARGUMENTS`: Streamlit's server, which reads its libraries while it waits.

The first page needs some of the heaviest libraries that there are. Reading them takes as long as opening a browser does,
so it begins when the server does, and not when the first page is asked for.
"""

import threading
from importlib import import_module

FIRST = ("plotly.graph_objects", "xarray", "gatescope.dashboards.views.overview", "gatescope.dashboards.views.gates")


def read_ahead() -> None:
    """Import what the first pages need; what fails here fails where it is needed, and says so there."""
    for name in FIRST:
        try:
            import_module(name)
        except Exception:
            return


def main() -> None:
    from streamlit.web.cli import main as streamlit

    threading.Thread(target=read_ahead, name="read ahead", daemon=True).start()
    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
