"""`python -m gatescope.dashboards.serve ARGUMENTS`: Streamlit's server, which reads its libraries while it waits.

The first page needs some heavy libraries. Reading them takes as long as opening a browser does, so it begins when the
server does, and not when the first page is asked for.
"""

import threading
from contextlib import suppress
from importlib import import_module

FIRST = ("pandas", "plotly.graph_objects", "xarray", "zarr", "scipy.stats")


def read_ahead() -> None:
    """Import what the first pages need; what fails here fails where it is needed, and says so there."""
    with suppress(Exception):
        for name in FIRST:
            import_module(name)


def main() -> None:
    from streamlit.web.cli import main as streamlit

    threading.Thread(target=read_ahead, name="read ahead", daemon=True).start()
    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
