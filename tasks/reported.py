"""What the reports printed, in the form of our own tables.

Gers, Schmidhuber, Cummins, *Learning to Forget: Continual Prediction with LSTM*: IDSIA-01-99, 1999; Neural Computation
12(10), 2000, doi 10.1162/089976600300015015. Its row for ERG is from Hochreiter, Schmidhuber, *Long Short-Term Memory*,
Neural Computation 9(8), 1997, doi 10.1162/neco.1997.9.8.1735.
"""

from typing import NamedTuple


class Reported(NamedTuple):
    """One row of a printed table.

    Percentages of `networks` networks; `streams` is the number of training streams (of strings for ERG) until a network
    was perfect, `good_stream` and `rest_stream` the mean length in symbols of a test stream. None was not printed.
    """

    networks: int
    perfect: float
    good: float
    rest: float
    streams: float | None = None
    good_stream: float | None = None
    rest_stream: float | None = None


REPORTED: dict[str, dict[str, Reported]] = {
    "cerg": {
        "external-reset": Reported(100, 74, 0, 26, streams=7441, rest_stream=31),
        "1997": Reported(100, 0, 1, 99, good_stream=1166, rest_stream=37),
        "decay-0.9": Reported(100, 0, 0, 100, rest_stream=56),
        "forget": Reported(100, 18, 29, 53, streams=18889, good_stream=39171, rest_stream=145),
        "forget-alpha-decay": Reported(100, 62, 6, 32, streams=14087, good_stream=68464, rest_stream=30),
    },
    "erg": {"lstm": Reported(30, 100, 0, 0, streams=8440)},
}
"""By task and row."""

NOTES: dict[str, str] = {
    "erg": "The report does not say of how many networks its 100 % is; it is judged as 30 of 30.",
}
"""What must be said of a task's printed table."""

TITLES: dict[str, str] = {
    "cerg": "continual embedded Reber grammar: streams of strings without a mark where one ends",
    "erg": "embedded Reber grammar: single strings, the network starts anew with each",
}

ROW_TITLES: dict[str, str] = {
    "external-reset": "1997 + external reset",
    "1997": "1997",
    "decay-0.9": "state decay 0.9",
    "forget": "forget gate",
    "forget-alpha-decay": "forget gate + alpha decay",
    "decay-0.8": "state decay 0.8",
    "decay-0.95": "state decay 0.95",
    "decay-0.99": "state decay 0.99",
    "weight-decay": "1997 + weight decay",
    "restart-20000": "forget gate + restarts",
    "no-shortcut": "forget gate, 375 weights",
    "lstm": "LSTM, 3 blocks of 2",
    "no-output-gate": "LSTM, no output gate",
    "unseen-gates": "LSTM, gates unseen",
    "unseen-gates-no-output-gate": "LSTM, unseen, no output gate",
}
"""What a row is called in a table; other rows go by their own names."""
