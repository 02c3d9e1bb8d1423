"""What the dashboard says in words, tables and code about a recording. Everything here is plain text, never markup."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from ..probe.schema import label_names
from ..signals import GATE_ROLES, retention_form
from .catalogue import RESET_FROM_OUTSIDE, Entry
from .figures import printable

ROLES = {
    "write": "1 lets the candidate into the memory, 0 keeps it out.",
    "read": "1 shows the memory to the outside, 0 hides it.",
    "reset": "1 lets the old memory into the candidate, 0 hides it from it.",
    "candidate": "It is what may be written into the memory.",
    "memory": "It is what the cell carries from step to step; 0 is empty.",
    "output": "It is what the cell shows to the next layer.",
    "internal": "It is an inner value of the cell's equations.",
}
MARKS = "\\`*_{}[]()<>#+-.!|~$:&@^=/"  # that may mean something in markdown
PREVIEW = 14  # characters of a sequence's text beside its number


def escaped(text: object) -> str:
    """Text that markdown shows as it is.

    >>> print(escaped("![x](y) <b> $1$"))
    \\!\\[x\\]\\(y\\) \\<b\\> \\$1\\$
    """
    return "".join(f"\\{sign}" if sign in MARKS else " " if sign in "\r\n" else sign for sign in str(text))


def text_labels(recording: xr.Dataset) -> list[str]:
    """Those that hold text."""
    return [name for name in label_names(recording) if recording[name].dtype == object]


def certificate(recording: xr.Dataset) -> list[str]:
    """What was recorded and how well it was rebuilt, in parts; then what must be known before trusting it."""
    attrs = recording.attrs
    parity, tolerance = float(attrs["parity"]), float(attrs["tolerance"])
    holds = "within" if parity <= tolerance else "NOT within"
    sequences, steps, units = recording.sizes["sequence"], int(recording["length"].sum()), recording.sizes["unit"]
    sizes = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((sequences, "sequence"), (steps, "step"), (units, "unit"))]
    parts = [
        f"{attrs['module']}: {attrs['cell']}",
        f"gates rebuilt to {parity:.1e} of the largest state, {holds} the tolerance of {tolerance:.0e}",
        ", ".join(sizes),
        "recorded in training mode" if attrs["training"] else "recorded in evaluation mode",
    ]
    return [str(part) for part in parts]


def remarks(recording: xr.Dataset) -> list[str]:
    """What must be known before trusting the picture."""
    attrs = recording.attrs
    found = []
    if float(attrs["parity"]) > float(attrs["tolerance"]):
        found.append("The gates do not rebuild the model's own states within the tolerance: do not rely on them.")
    if attrs["training"] and float(attrs.get("dropout", 0)):
        found.append(
            f"Recorded in training mode with dropout {attrs['dropout']:g}: the values hold for that call only."
        )
    notes = {
        "nonfinite": "Values that are not finite",
        "weights_changed": "Weights",
        "labels_left_out": "Labels left out",
        "left_out": "Left out of the recording",
    }
    return found + [f"{what}: {attrs[key]}" for key, what in notes.items() if attrs.get(key)]


def reading(recording: xr.Dataset, signal: str, direction: str, *, marked: bool = False) -> str:
    """One line: what the heatmap shows and how to read it."""
    data = recording[signal]
    symbol = f" ({data.attrs['symbol']})" if data.attrs.get("symbol") else ""
    lines = [f"{signal}{symbol}: a row per {data.dims[-1]}, a column per step.", _meaning(recording, signal)]
    if "boundary" in recording.coords:
        lines.append("Dotted lines stand before the first step of a segment.")
    if marked:
        lines.append("Bars count units that throw their memory away; crosses say which, where there is room.")
    if direction == "backward":
        lines.append("This direction runs from right to left.")
    return " ".join(line for line in lines if line)


def _meaning(recording: xr.Dataset, signal: str) -> str:
    form, keep = retention_form(str(recording.attrs["retention"]))
    if signal == keep:
        return f"{'1 keeps' if form == 'signal' else '0 keeps'} the old memory, {int(form != 'signal')} drops it."
    return ROLES.get(str(recording[signal].attrs.get("role", "")), "")


def sequence_name(recording: xr.Dataset, place: int, label: str | None) -> str:
    """A sequence by number, length and the beginning of its text."""
    steps = int(recording["length"].values[place])
    name = f"{recording['sequence'].values[place]} · {steps:,} step{'s' * (steps != 1)}"
    if label is None or recording[label].dtype != object:
        return name
    tokens = [str(token) for token in recording[label].values[place, : min(steps, PREVIEW)]]
    between = "" if max(map(len, tokens), default=0) <= 1 else " "
    text = "".join(printable(sign) for sign in between.join(tokens).strip())
    text = text if len(text) <= PREVIEW and len(tokens) == steps else text[:PREVIEW] + "…"
    return f"{name} · \u2068{text}\u2069"  # isolated, so that right-to-left text stays apart


def trace_panels(recording: xr.Dataset, signal: str) -> list[str]:
    """Signals to draw as traces, gate above state: what keeps the memory (or the gate looked at), then the memory."""
    same = [str(name) for name, data in recording.data_vars.items() if data.dims == recording[signal].dims]
    roles = {name: str(recording[name].attrs.get("role", "")) for name in same}
    _, keep = retention_form(str(recording.attrs["retention"]))
    gate = [signal] if roles[signal] in GATE_ROLES else [str(keep)] if keep in same else []
    memory = [name for name in same if roles[name] == "memory"]
    return list(dict.fromkeys([*gate, *([] if roles[signal] in GATE_ROLES else [signal]), *memory]))


def telling_units(data: xr.DataArray) -> list[int]:
    """The units with the highest and the lowest mean of (time, unit): what the reader may want to see first.

    >>> telling_units(xr.DataArray([[0.2, 0.9, 0.1]], dims=["time", "unit"], coords={"unit": [4, 5, 6]}))
    [5, 6]
    """
    finite = np.isfinite(data.values)
    mean = np.where(finite, data.values, 0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1)
    units = data[data.dims[-1]].values
    return list(dict.fromkeys([int(units[mean.argmax()]), int(units[mean.argmin()])]))


def saturation_table(result: xr.Dataset, signals: Sequence[str]) -> pd.DataFrame:
    """A row per unit and signal of a result of `saturation` at one layer and direction."""
    part = result.sel(signal=list(signals))
    columns = {
        "unit": np.tile(result["unit"].values, len(signals)),
        "signal": np.repeat(np.asarray(signals, dtype=object), result.sizes["unit"]),
        "verdict": part["verdict"].values.ravel(),
        **{name: part[name].values.ravel() for name in ("left", "right", "mean")},
        "squash_saturated": np.tile(result["squash_saturated"].values, len(signals)),
    }
    return pd.DataFrame(columns)


def verdict_counts(result: xr.Dataset, signal: str) -> str:
    """How many units of a gate got each verdict, most frequent first: one line."""
    words, counts = np.unique(result.sel(signal=signal)["verdict"].values.astype(str), return_counts=True)
    ranked = sorted(zip(counts.tolist(), words.tolist(), strict=True), reverse=True)
    return f"{signal}: " + ", ".join(f"{count:,} {word}" for count, word in ranked)


def opening(entry: Entry, module: str | None) -> list[str]:
    """Lines of Python, after `import gatescope as gs`, that get the recording; `module` names a node of a tree."""
    if entry.example:
        asked = ', inputs_kwargs={"reset": torch.from_numpy(sample.labels["boundary"])}'
        more = asked if entry.example == RESET_FROM_OUTSIDE else ""
        return [
            "import torch",
            "",
            f"model, sample = gs.load_example({entry.example!r})",
            f"recording = gs.record(model, torch.from_numpy(sample.inputs){more}, labels=sample.labels)",
        ]
    lines = ["", f"recording = gs.open_recording({str(entry.path)!r})"]
    if module is not None:
        lines.append(f"recording = recording[{module!r}].to_dataset()  # a tree has a node per module")
    return lines


def run_code(
    signal: str,
    where: dict[str, object],
    *,
    labels: str | None,
    order: Sequence[str] | Sequence[int],
    units: Sequence[int],
    panels: Sequence[str],
    window: tuple[int, int] | None,
) -> list[str]:
    """Lines of Python that draw the heatmap and the traces of a recording.

    `order` is either the units of the heatmap or lines that sort them as `order`.
    """
    place = ", ".join(f"{name}={value!r}" for name, value in where.items())
    run = f"{place}, labels={labels!r}" if labels else place
    sorting = [str(line) for line in order if isinstance(line, str)]
    rows = ", units=order" if sorting else f", units={list(order)}" if order else ""
    part = "part" if window else "recording"
    taking = [f"part = recording.sel(time=slice({window[0]}, {window[1]}))"] if window else []
    lines = [*sorting, *taking, f"axes = gs.plot_signal({part}, {signal!r}, {run}{rows})"]
    if units:
        lines.append(f"panels = gs.plot_traces({part}, {list(units)}, signals={list(panels)}, {run})")
    return lines


def unit_code(
    unit: int, where: dict[str, object], *, labels: str | None, judged: str | None, window: tuple[int, int] | None
) -> list[str]:
    """Lines of Python that draw all about one unit; `judged` is the label by which roles are told."""
    asked = {**where, **({"labels": labels} if labels else {}), **({"window": window} if window else {})}
    place = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    measures = {name: f"gs.{name}(here)" for name in ("saturation", "timescales", "resets", "roles")}
    if judged:
        measures["roles"] = f"gs.roles(here, {judged!r})"
    return [
        "",
        f"here = recording.sel(layer=[{where['layer']!r}], direction=[{where['direction']!r}])",
        f"figure = gs.figure_unit(recording, {unit}, {place},",
        *(f"    {name}={call}," for name, call in measures.items()),
        ")",
    ]
