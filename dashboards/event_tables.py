"""Tables of reset events, of their agreement with boundaries and of their triggers: a row per event, unit or label."""

import numpy as np
import pandas as pd
import xarray as xr

EVENT_COLUMNS = ("onset", "offset", "depth", "erased", "before", "after", "written", "overwrite")
UNIT_COLUMNS = ("count", "rate", "mean_depth", "mean_erased", "overwritten", "low", "high", "usual")
AGREEMENT = ("events", "precision", "recall", "f1", "lag", "hits", "expected", "z", "p", "p_adjusted")


def event_rows(events: xr.Dataset, kind: str) -> pd.DataFrame:
    """A row per event of a kind, as `resets` gives them."""
    some = events.isel(event=events["event_kind"].to_numpy() == kind)
    names = ["event_sequence", "event_unit", *(["event_block"] if "event_block" in some else [])]
    columns = {name.removeprefix("event_"): some[name].to_numpy() for name in names}
    return pd.DataFrame(columns | {name: some[name].to_numpy() for name in EVENT_COLUMNS})


def unit_rows(events: xr.Dataset, kind: str) -> pd.DataFrame:
    """A row per unit: how often it resets, how deeply, and below what its gate has fallen; most events first."""
    part = events.sel(kind=kind).isel(layer=0, direction=0)
    columns = {"unit": part["unit"].to_numpy()} | {name: part[name].to_numpy() for name in UNIT_COLUMNS}
    return pd.DataFrame(columns).sort_values("count", ascending=False, kind="stable", ignore_index=True)


def agreement_rows(result: xr.Dataset) -> pd.DataFrame:
    """A row per block, where there are any, and per unit, those that agree best with the boundaries on top."""
    result = result.isel(layer=0, direction=0)
    units = _agreement(result, "", "unit")
    blocks = [_agreement(result, "block_", "memory_block")] if "memory_block" in result.dims else []
    return pd.concat([*blocks, units], ignore_index=True)


def _agreement(result: xr.Dataset, prefix: str, dim: str) -> pd.DataFrame:
    what = "block" if prefix else "unit"
    columns = {"what": np.full(result.sizes[dim], what, dtype=object), "number": result[dim].to_numpy()}
    table = pd.DataFrame(columns | {name: result[prefix + name].to_numpy() for name in AGREEMENT})
    return table.sort_values("f1", ascending=False, kind="stable", ignore_index=True)


def trigger_rows(result: xr.Dataset) -> pd.DataFrame:
    """A row per label: how much more often the layer resets there, and of how many units it is the trigger."""
    part = result.isel(layer=0, direction=0)
    columns = {"label": part["label"].to_numpy().astype(str), "steps": part["steps"].to_numpy()}
    columns |= {name: part[name].to_numpy() for name in ("layer_lift", "layer_p", "layer_p_adjusted", "units")}
    table = pd.DataFrame(columns)
    if "low" in part.coords:  # ranges of a number keep their order
        return table
    return table.sort_values("layer_lift", ascending=False, kind="stable", ignore_index=True)


def best_units(events: xr.Dataset, kind: str, agreement: xr.Dataset | None, most: int) -> list[int]:
    """The units to look at first: those that agree best with the boundaries beyond chance, then those with most events.

    >>> best_units(xr.Dataset({"count": (("kind", "layer", "direction", "unit"), [[[[0, 5, 9]]]])},
    ...            coords={"kind": ["reset"], "unit": [4, 5, 6]}), "reset", None, 3)
    [6, 5]
    """
    count = events["count"].sel(kind=kind).isel(layer=0, direction=0).to_numpy()
    score = np.zeros(count.size)
    if agreement is not None:
        part = agreement.isel(layer=0, direction=0)
        score = np.where(part["p_adjusted"].to_numpy() < 0.05, np.nan_to_num(part["f1"].to_numpy()), 0.0)
    order = np.lexsort((-count, -score))
    return [int(events["unit"].values[at]) for at in order[:most] if count[at]]
