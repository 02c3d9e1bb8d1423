"""Everything that the pages offer to take away can be made: tables, results, pictures."""

from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from gatescope.dashboards import ways_out
from gatescope.probe.store import save_recording

OFFERED = {
    "resets": {"raster", "average", "alignment", "triggers"},
    "roles": {"roles"},
    "saturation": {"saturation"},
    "gradient_flow": {"decay", "paths", "units", "shares"},
}


@pytest.mark.slow
@pytest.mark.parametrize("view", OFFERED)
def test_what_a_page_offers_can_be_made(opened, tmp_path: Path, resetting: xr.Dataset, reading, monkeypatch, view):
    save_recording(resetting.isel(time=slice(0, 60)).assign_coords(length=("sequence", [60, 60])), tmp_path / "r.zarr")
    offered: list[dict[str, Any]] = []
    monkeypatch.setattr(ways_out, "show", lambda name, **given: offered.append(given))
    reading.healthy(opened(tmp_path, view=view, at_least="5"))
    (given,) = offered
    assert set(given["pictures"]) == OFFERED[view]
    for draw in given["pictures"].values():
        assert ways_out.picture(draw, "png").startswith(b"\x89PNG")
        assert b"<svg" in ways_out.picture(draw, "svg")[:2000]
    for table in given["tables"].values():
        assert len(table().to_csv(index=False).splitlines()) == len(table()) + 1 > 1
    for name, result in given["results"].items():
        (tmp_path / f"{name}.nc").write_bytes(ways_out.netcdf(result))
        with xr.open_dataset(tmp_path / f"{name}.nc", engine="h5netcdf") as again:
            xr.testing.assert_allclose(again.load(), result)
