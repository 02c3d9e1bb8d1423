"""Opening lazily: with dask in pieces, without it as xarray does, and never more than is asked for."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs
from gatescope.probe import pieces
from gatescope.probe.store import open_recording, save_recording

Make = Callable[..., xr.Dataset]


@pytest.fixture(params=[".zarr", ".nc"])
def path(request: pytest.FixtureRequest, make_recording: Make, tmp_path: Path) -> Path:
    """A recording whose signals have several chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces.chunk_shape, "__defaults__", (4000,))
        return save_recording(make_recording(lengths=(200,) * 8 + (9,) * 3), tmp_path / f"run{request.param}")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 8000)
    return 8000


@pytest.mark.usefixtures("small_pieces")
def test_with_dask_signals_of_several_pieces_are_dask_arrays_of_such_pieces(path: Path, make_recording: Make) -> None:
    dask_array = pytest.importorskip("dask.array")
    opened = open_recording(path)
    for name in ("forget_gate", "cell_state"):
        array = opened[name].data
        assert isinstance(array, dask_array.Array)
        sizes = [
            np.prod([dim[k] for dim, k in zip(array.chunks, at, strict=True)]) for at in np.ndindex(array.numblocks)
        ]
        assert max(sizes) * 4 <= 3 * 8000
        assert array.npartitions > 3
        assert opened[name].encoding == {}
    assert isinstance(opened["length"].data, np.ndarray)
    assert not isinstance(opened["initial_cell_state"].data, dask_array.Array), "one piece needs no dask"
    xr.testing.assert_identical(opened.load(), make_recording(lengths=(200,) * 8 + (9,) * 3))
    opened.close()


@pytest.mark.usefixtures("small_pieces")
def test_a_dask_piece_is_made_of_whole_chunks_of_the_disk(path: Path) -> None:
    if path.suffix != ".zarr":
        return
    import zarr

    stored = zarr.open_array(path / "cell_state", mode="r").chunks
    opened = open_recording(path)
    for parts, chunk in zip(opened["cell_state"].chunks, stored, strict=True):
        assert all(part % chunk == 0 for part in parts[:-1])


@pytest.mark.usefixtures("small_pieces")
def test_without_dask_signals_are_plainly_lazy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    opened = open_recording(path)
    assert opened["forget_gate"].chunks is None
    assert not opened["forget_gate"].variable._in_memory
    opened.close()


@pytest.mark.usefixtures("small_pieces")
def test_dask_can_be_declined(path: Path) -> None:
    opened = open_recording(path, chunks=None)
    assert opened["forget_gate"].chunks is None
    assert not opened["forget_gate"].variable._in_memory
    opened.close()
    with pytest.raises(ValueError, match="chunks must be 'auto' or None; 5 came"):
        open_recording(path, chunks=5)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small_pieces")
def test_the_number_of_pieces_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_PIECES", 2)
    opened = open_recording(path)
    assert opened["forget_gate"].data.npartitions <= 3
    opened.close()


@pytest.mark.usefixtures("small_pieces")
def test_a_store_that_was_streamed_opens_in_pieces_before_and_after_its_end(tmp_path: Path) -> None:
    model, seen = torch.nn.LSTM(3, 8), []
    with torch.no_grad(), gs.attach(model, store=tmp_path / "run.zarr") as probe:
        state = None
        for _ in range(3):
            _, state = model(torch.randn(400, 1, 3), state)
        probe.flush()
        seen.append(open_recording(tmp_path / "run.zarr"))
        before = seen[0]["forget_gate"].values
    seen.append(open_recording(tmp_path / "run.zarr"))
    for opened in seen:
        assert opened["forget_gate"].chunks is not None
        xr.testing.assert_identical(gs.saturation(opened)["left"], gs.saturation(opened.load())["left"])
    np.testing.assert_array_equal(seen[1]["forget_gate"].values, before)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is read from zarr's chunk files."""
    from zarr.storage import LocalStore

    sizes: list[int] = []
    get = LocalStore.get

    async def counting(self: Any, key: str, *args: Any, **options: Any) -> Any:
        found = await get(self, key, *args, **options)
        if found is not None and not key.endswith(".json"):
            sizes.append(len(found))
        return found

    monkeypatch.setattr(LocalStore, "get", counting)
    return sizes


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("chunks", ["auto", None])
def test_a_look_at_a_few_steps_reads_a_few_chunks(path: Path, read_bytes: list[int], chunks: Any) -> None:
    if path.suffix != ".zarr":
        return
    opened = open_recording(path, chunks=chunks)
    whole, opening = opened["forget_gate"].nbytes, sum(read_bytes)
    opened["forget_gate"].isel(layer=0, direction=0, sequence=2, time=slice(0, 20), unit=1).load()
    assert 0 < sum(read_bytes) - opening <= whole / 10
    opened.close()
