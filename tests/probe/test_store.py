"""Saving and opening recordings: what goes to disk comes back, and nothing half done ever appears."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from gatescope.probe import netcdf_files, pieces, zarr_files
from gatescope.probe.schema import SchemaError, normalise
from gatescope.probe.store import open_recording, save_recording

FORMATS = (".zarr", ".nc")
Make = Callable[..., xr.Dataset]


@pytest.fixture(params=FORMATS)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def assert_same(opened: xr.Dataset | xr.DataTree, recording: xr.Dataset | xr.DataTree) -> None:
    """Values, kinds, attributes with their types, and the order of everything."""
    xr.testing.assert_identical(opened, recording)
    if isinstance(recording, xr.DataTree):
        assert list(opened.children) == list(recording.children)
        for name, node in recording.children.items():
            assert_same(opened.children[name].to_dataset(), node.to_dataset())
        return
    assert list(opened.coords) == list(recording.coords)
    assert list(opened.data_vars) == list(recording.data_vars)
    assert dict(opened.attrs) == dict(recording.attrs)
    assert [type(v) for v in opened.attrs.values()] == [type(v) for v in recording.attrs.values()]
    for name, variable in recording.variables.items():
        assert opened.variables[name].dtype == variable.dtype, name
        assert opened.variables[name].dims == variable.dims, name
        assert opened.variables[name].encoding == {}, "a file's chunks and codecs must not follow into the next file"
        kinds = [type(v) for v in variable.attrs.values()]
        assert [type(v) for v in opened.variables[name].attrs.values()] == kinds, name


def round_trip(recording: xr.Dataset | xr.DataTree, path: Path, **options: object) -> xr.Dataset | xr.DataTree:
    opened = open_recording(save_recording(recording, path, **options))
    loaded = opened.load()
    opened.close()
    return loaded


def relabelled(recording: xr.Dataset, tokens: list[str]) -> xr.Dataset:
    """The recording with the given texts at its first steps."""
    letters = recording["token"].values.copy()
    real = np.argwhere(recording["call"].values >= 0)
    for (sequence, step), token in zip(real, tokens, strict=False):
        letters[sequence, step] = token
    return recording.assign_coords(token=(("sequence", "time"), letters))


def gru(recording: xr.Dataset) -> xr.Dataset:
    """The same numbers under a GRU's names."""
    renamed = recording.drop_vars(["cell_state", "initial_cell_state", "output_gate"]).isel(gate=slice(0, 3))
    renamed = renamed.rename(input_gate="reset_gate", forget_gate="update_gate")
    renamed["reset_gate"].attrs["role"] = "reset"
    names = np.array(["reset_gate", "update_gate", "candidate"], dtype=object)
    renamed["candidate_recurrent"] = renamed["candidate"].copy()
    renamed["candidate_recurrent"].attrs = {"long_name": "n", "symbol": "W h", "role": "internal", "units": "1"}
    return renamed.assign_coords(gate=names).assign_attrs(cell="GRUCell", retention="update_gate", dropout=0.5)


def projected(recording: xr.Dataset) -> xr.Dataset:
    """A hidden state of two projected units beside five of memory."""
    short = recording[["hidden_state", "initial_hidden_state"]].isel(unit=slice(0, 2)).rename(unit="projection")
    rest = recording.drop_vars(["hidden_state", "initial_hidden_state", "weight_hh", "gate", "source"])
    rest = rest.merge(short)
    size = (recording.sizes["layer"], recording.sizes["direction"], 2, recording.sizes["unit"])
    rest["weight_hr"] = (("layer", "direction", "projection", "unit"), np.ones(size, np.float32))
    return rest.assign_coords(block=("unit", np.arange(recording.sizes["unit"]) // 2))


def cut(recording: xr.Dataset, lengths: list[int]) -> xr.Dataset:
    """The recording with its sequences shortened; what is cut off becomes padding."""
    padding = np.arange(recording.sizes["time"]) >= np.array(lengths)[:, None]
    here = xr.DataArray(~padding, dims=("sequence", "time"))
    result = recording.copy(deep=True)
    for name, variable in recording.data_vars.items():
        if "time" in variable.dims:
            result[name] = variable.where(here)
    empty = {"token": "", "boundary": False, "value": np.nan, "call": -1}
    labels = {
        k: (("sequence", "time"), np.where(padding, v, recording[k].values).astype(recording[k].dtype))
        for k, v in empty.items()
    }
    return result.assign_coords(length=("sequence", np.array(lengths)), **labels)


HARD_TOKENS = [
    "",
    "x" * 10_000,
    "مرحبا",
    "👩‍👩‍👧 🇪🇬",
    "\0",
    "a\0b\0",
    "\\",
    "\\0",
    "\\\\u0041",
    "trailing\\",
    "\n\t\r",
    " ",
    "NaN",
    "None",
]

CASES: dict[str, Callable[[Make], xr.Dataset | xr.DataTree]] = {
    "two layers, two directions, three kinds of label": lambda make: make(),
    "no label": lambda make: make(labels=False),
    "hard tokens": lambda make: relabelled(make(), HARD_TOKENS),
    "GRU": lambda make: gru(make()),
    "projection and blocks": lambda make: projected(make()),
    "one unit, one step": lambda make: make(layers=1, directions=1, lengths=(1,), units=1),
    "an empty sequence": lambda make: cut(make(), [7, 0, 1]),
    "no sequence": lambda make: make().isel(sequence=[]),
    "no time": lambda make: cut(make(), [0, 0, 0]).isel(time=[]),
    "float64": lambda make: make().map(lambda v: v.astype(np.float64), keep_attrs=True),
    "float16": lambda make: make().map(lambda v: v.astype(np.float16), keep_attrs=True),
    "backward only": lambda make: make().isel(direction=[1]),
    "labels whose names have spaces": lambda make: make().rename(token="the token", value="قيمة", boundary="c"),
    "attributes with hard text": lambda make: make().assign_attrs(module="a\0b\\0 \ud800 ü" * 9000, nonfinite=""),
    "a tree of three sizes": lambda make: xr.DataTree.from_dict(
        {
            "encoder.layers.0": make(units=3, module="encoder.layers.0"),
            "decoder": gru(make(layers=1, lengths=(4, 2), units=1, module="decoder")),
            "é.rnn": projected(make(layers=1, directions=1, lengths=(30,), units=7, module="é.rnn")),
        }
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_saved_comes_back_with_its_values_kinds_attributes_and_order(make_recording, tmp_path, suffix, case):
    recording = CASES[case](make_recording)
    assert_same(round_trip(recording, tmp_path / f"run{suffix}"), recording)


def test_text_of_numpys_own_kinds_small_integers_and_numpy_attributes_come_back_as_the_schema_says(make_recording):
    recording = make_recording()
    foreign = recording.assign_coords(
        token=recording["token"].astype("U"), length=recording["length"].astype(np.int32)
    ).assign_attrs(parity=np.float64(1e-7), training=np.int64(0))
    assert_same(normalise(foreign), recording)


def test_saving_does_not_change_the_recording(make_recording, tmp_path, suffix):
    recording = make_recording()
    before = recording.copy(deep=True)
    save_recording(recording, tmp_path / f"run{suffix}", dtype="float16")
    assert_same(recording, before)


def test_a_path_with_spaces_and_other_scripts_works(make_recording, tmp_path, suffix):
    folder = tmp_path / "my runs ليلة"
    folder.mkdir()
    path = folder / f"тест #1 %20{suffix}"
    assert_same(round_trip(make_recording(), path), make_recording())
    assert os.listdir(folder) == [path.name]


def test_float16_is_stored_for_signals_only(make_recording, tmp_path, suffix):
    recording = make_recording()
    opened = round_trip(recording, tmp_path / f"run{suffix}", dtype="float16")
    assert opened["forget_gate"].dtype == np.float16
    assert opened["weight_hh"].dtype == opened["initial_cell_state"].dtype == np.float32
    np.testing.assert_allclose(opened["cell_state"], recording["cell_state"], rtol=1e-3, atol=1e-6)


def test_a_state_too_large_for_float16_is_refused_by_name(make_recording, tmp_path, suffix):
    recording = make_recording()
    recording["cell_state"][0, 0, 0, 0, 0] = 7e4
    with pytest.raises(ValueError, match="at most 65504; 'cell_state' reaches 70000"):
        save_recording(recording, tmp_path / f"run{suffix}", dtype="float16")
    assert os.listdir(tmp_path) == []


def test_signals_stay_on_disk_until_they_are_used(make_recording, tmp_path, suffix):
    opened = open_recording(save_recording(make_recording(), tmp_path / f"run{suffix}"))
    assert not opened["forget_gate"].variable._in_memory
    assert opened["token"].variable._in_memory
    np.testing.assert_array_equal(opened["forget_gate"][0, 1, :, 3], make_recording()["forget_gate"][0, 1, :, 3])
    assert not opened["forget_gate"].variable._in_memory
    opened.close()


def test_what_is_opened_can_be_saved_in_the_other_format(make_recording, tmp_path):
    opened = open_recording(save_recording(make_recording(), tmp_path / "run.nc"))
    again = open_recording(save_recording(opened, tmp_path / "run.zarr"))
    assert not opened["forget_gate"].variable._in_memory
    assert_same(round_trip(again, tmp_path / "again.nc"), make_recording())
    opened.close()


def test_opening_changes_no_file_and_a_closed_file_can_go(make_recording, tmp_path, suffix):
    path = save_recording(make_recording(), tmp_path / f"run{suffix}")
    tree = [path] if path.is_file() else sorted(path.rglob("*"))
    before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in tree}
    opened = open_recording(path)
    opened["forget_gate"].sum().item()
    opened.close()
    tree = [path] if path.is_file() else sorted(path.rglob("*"))
    assert {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in tree} == before
    links = [
        os.readlink(f"/proc/self/fd/{k}") for k in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{k}")
    ]
    assert not [link for link in links if link.startswith(str(tmp_path))]


def test_a_closed_tree_holds_no_file(make_recording, tmp_path):
    opened = open_recording(save_recording(xr.DataTree.from_dict({"rnn": make_recording()}), tmp_path / "run.nc"))
    opened["rnn"]["forget_gate"].sum().item()
    opened.close()
    links = [
        os.readlink(f"/proc/self/fd/{k}") for k in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{k}")
    ]
    assert not [link for link in links if link.startswith(str(tmp_path))]


def test_plain_xarray_reads_the_same_values(make_recording, tmp_path):
    recording = make_recording()
    save_recording(recording, tmp_path / "run.zarr")
    save_recording(recording, tmp_path / "run.nc")
    for plain in (
        xr.open_zarr(tmp_path / "run.zarr", consolidated=False, chunks=None),
        xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf"),
    ):
        assert set(plain.coords) == set(recording.coords)
        for name in recording.variables:
            np.testing.assert_array_equal(plain[name].values.astype(recording[name].dtype), recording[name].values)
        plain.close()


def test_chunks_hold_a_batch_of_sequences_all_units_and_1_to_16_megabytes():
    for sizes in (
        (1, 1, 32, 1000, 256),
        (2, 2, 33, 3000, 64),
        (1, 1, 5000, 50, 16),
        (1, 1, 1, 900_000, 64),
        (6, 2, 9, 700, 65),
    ):
        names = dict(zip(("layer", "direction", "sequence", "time", "unit"), sizes, strict=True))
        chunk = pieces.chunk_shape(names, 4)
        assert chunk[-1] == sizes[-1]
        assert 1e6 <= np.prod(chunk) * 4 <= 16e6
        stored = np.prod([-(-size // part) * part for size, part in zip(sizes, chunk, strict=True)])
        assert stored <= 1.1 * np.prod(sizes), "edge chunks must not waste space"


def test_a_recording_of_many_chunks_comes_back(make_recording, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(pieces.chunk_shape, "__defaults__", (400,))
    recording = relabelled(make_recording(), HARD_TOKENS)
    path = tmp_path / f"run{suffix}"
    assert_same(round_trip(recording, path), recording)
    if suffix == ".zarr":
        assert len(list((path / "cell_state").rglob("*"))) > 20


def test_padding_costs_no_file_of_its_own(make_recording, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces.chunk_shape, "__defaults__", (8000,))
    path = save_recording(make_recording(1, 1, (200,) * 8 + (9,) * 8), tmp_path / "run.zarr")
    full = save_recording(make_recording(1, 1, (200,) * 16), tmp_path / "full.zarr")
    assert zarr_files.weight(path / "cell_state")[0] < 0.7 * zarr_files.weight(full / "cell_state")[0]


@pytest.mark.parametrize("name", ["run", "run.pkl", "run.zarr.zip", "run.h5"])
def test_another_ending_is_refused(make_recording, tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.zarr .* or \.nc"):
        save_recording(make_recording(), tmp_path / name)


def test_a_missing_folder_is_named(make_recording, tmp_path, suffix):
    with pytest.raises(FileNotFoundError, match="nowhere' must exist"):
        save_recording(make_recording(), tmp_path / "nowhere" / f"run{suffix}")


def test_nothing_that_exists_is_overwritten(make_recording, tmp_path, suffix, monkeypatch):
    path = save_recording(make_recording(), tmp_path / f"run{suffix}")
    monkeypatch.setattr(zarr_files, "write", None)  # it is refused before anything is written
    monkeypatch.setattr(netcdf_files, "write", None)
    link = tmp_path / f"dangling{suffix}"
    link.symlink_to(tmp_path / "gone")
    for taken in (path, link):
        with pytest.raises(FileExistsError, match="never overwritten"):
            save_recording(make_recording(seed=1), taken)
    assert_same(open_recording(path).load(), make_recording())


def test_what_somebody_else_put_there_meanwhile_is_not_overwritten(make_recording, tmp_path, suffix, monkeypatch):
    files, path = (zarr_files if suffix == ".zarr" else netcdf_files), tmp_path / f"run{suffix}"
    monkeypatch.setattr(files, "finish", lambda *_: path.write_text("theirs"))
    with pytest.raises(FileExistsError, match="never overwritten"):
        save_recording(make_recording(), path)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_text() == "theirs"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_an_error_in_the_middle_leaves_nothing(make_recording, tmp_path, suffix, monkeypatch, error):
    files = zarr_files if suffix == ".zarr" else netcdf_files

    def broken(*_: object) -> None:
        assert len(os.listdir(tmp_path)) == 1
        raise error("stop")

    monkeypatch.setattr(files, "finish", broken)
    with pytest.raises(error, match="stop"):
        save_recording(make_recording(), tmp_path / f"run{suffix}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["bfloat16", "int8", "float128"])
def test_a_precision_that_cannot_be_stored_is_refused(make_recording, tmp_path, kind):
    with pytest.raises(ValueError, match=f"float16, float32, float64 or None; '{kind}' came"):
        save_recording(make_recording(), tmp_path / "run.zarr", dtype=kind)


SAVE_A_LOT = """
import importlib.util, resource, sys, time
from gatescope.probe import netcdf_files, zarr_files
from gatescope.probe.store import save_recording
spec = importlib.util.spec_from_file_location("made", sys.argv[1])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
recording = made.lstm_recording(lengths=(1000,) * 8, units=64)
def slowly(pieces):
    def wait(*arguments):
        for piece in pieces(*arguments):
            yield piece
            time.sleep(0.3)  # so that a signal comes while the file is half written
    return wait
if sys.argv[3:] == ["slowly"]:
    netcdf_files.pieces, zarr_files.pieces = slowly(netcdf_files.pieces), slowly(zarr_files.pieces)
elif len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), -1))
try:
    print("ready", flush=True)
    save_recording(recording, sys.argv[2])
except OSError as error:
    print(error.errno, error)
"""


def save_elsewhere(path: Path, *arguments: str) -> subprocess.Popen[str]:
    made = Path(__file__).parents[1] / "conftest.py"
    command = [sys.executable, "-W", "error", "-c", SAVE_A_LOT, str(made), str(path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_full_disk_is_said_in_one_sentence_and_leaves_nothing(tmp_path, suffix):
    with save_elsewhere(tmp_path / f"run{suffix}", "300000") as process:
        said = process.communicate(timeout=60)[0]
    assert f"{errno.ENOSPC} [Errno 28] The disk must have room for the recording" in said
    assert len(said.splitlines()) == 2, said
    assert os.listdir(tmp_path) == []


def strike(path: Path, number: signal.Signals) -> str:
    """Send a signal to a process that has begun to save; what it said."""
    with save_elsewhere(path, "slowly") as process:
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 30
        while not os.listdir(path.parent) and time.monotonic() < until:
            pass
        process.send_signal(number)
        return process.communicate(timeout=60)[0]


def test_an_interrupt_from_the_keyboard_leaves_nothing(tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    assert "KeyboardInterrupt" in strike(path, signal.SIGINT)
    assert os.listdir(tmp_path) == []


def test_a_process_killed_in_the_middle_leaves_no_recording_and_the_next_save_works(make_recording, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    strike(path, signal.SIGKILL)
    left = os.listdir(tmp_path)
    assert len(left) == 1
    assert left[0].endswith(".partial"), "the process was killed too late for this test"
    with pytest.raises(SchemaError):
        open_recording(tmp_path / left[0])
    assert_same(round_trip(make_recording(), path), make_recording())


def test_a_missing_path_is_named(tmp_path, suffix):
    with pytest.raises(FileNotFoundError, match=f"nothing at .*gone{suffix}"):
        open_recording(tmp_path / f"gone{suffix}")


def text_file(path: Path, _: xr.Dataset) -> None:
    path.write_text("time,unit\n1,2\n")


def empty_file(path: Path, _: xr.Dataset) -> None:
    path.touch()


def empty_folder(path: Path, _: xr.Dataset) -> None:
    path.mkdir()


def folder_of_something_else(path: Path, _: xr.Dataset) -> None:
    path.mkdir()
    (path / "readme.txt").write_text("no zarr")


def broken_metadata(path: Path, _: xr.Dataset) -> None:
    path.mkdir()
    (path / "zarr.json").write_text("{")


def another_zarr(path: Path, _: xr.Dataset) -> None:
    xr.Dataset({"a": ("x", [1.0])}).to_zarr(path, zarr_format=3, consolidated=False)


def another_netcdf(path: Path, _: xr.Dataset) -> None:
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")


def another_version(path: Path, recording: xr.Dataset) -> None:
    recording.drop_vars("token").assign_attrs(schema="gatescope.recording/99").to_netcdf(path, engine="h5netcdf")


def written_by_xarray(path: Path, recording: xr.Dataset) -> None:
    recording.to_netcdf(path, engine="h5netcdf")


def truncated_file(path: Path, recording: xr.Dataset) -> None:
    save_recording(recording, path.with_name("whole.nc"))
    whole = path.with_name("whole.nc").read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])


def chunk_missing(path: Path, recording: xr.Dataset) -> None:
    save_recording(recording, path.with_name("whole.zarr"))
    shutil.copytree(path.with_name("whole.zarr"), path)
    next(file for file in (path / "cell_state").rglob("0") if file.is_file()).unlink()


def chunk_truncated(path: Path, recording: xr.Dataset) -> None:
    chunk_missing(path, recording)
    (path / "cell_state/c/0/0/0/0/0").write_bytes(b"1234")


def variable_missing(path: Path, recording: xr.Dataset) -> None:
    save_recording(recording, path.with_name("whole.zarr"))
    shutil.copytree(path.with_name("whole.zarr"), path)
    (path / "cell_state" / "zarr.json").unlink()


def made_by_pickle(path: Path, _: xr.Dataset) -> None:
    np.save(path.with_name("x.npy"), np.array([{"a": 1}], dtype=object), allow_pickle=True)
    path.with_name("x.npy").rename(path)


NOT_RECORDINGS: dict[Callable[[Path, xr.Dataset], None], str] = {
    text_file: "neither a zarr folder nor a netCDF-4 file",
    empty_file: "neither a zarr folder nor a netCDF-4 file",
    made_by_pickle: "neither a zarr folder nor a netCDF-4 file",
    empty_folder: "no zarr.json",
    folder_of_something_else: "no zarr.json",
    broken_metadata: "cannot be read",
    another_zarr: "no attribute 'schema'",
    another_netcdf: "no attribute 'schema'",
    written_by_xarray: "to_netcdf of xarray wrote it",
    another_version: "must be 'gatescope.recording/1'; 'gatescope.recording/99' came",
    truncated_file: "cannot be read",
    chunk_missing: "files of data",
    chunk_truncated: "bytes",
    variable_missing: "'cell_state' is missing",
}


@pytest.mark.parametrize("spoil", NOT_RECORDINGS, ids=lambda spoil: spoil.__name__)
def test_what_is_no_whole_recording_is_refused_in_one_sentence(make_recording, tmp_path, spoil):
    path = tmp_path / "thing"
    spoil(path, make_recording())
    with pytest.raises(SchemaError, match=NOT_RECORDINGS[spoil]) as caught:
        open_recording(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


OPEN_QUIETLY = """
import sys
from gatescope.probe.store import open_recording
from gatescope.probe.concat import concat
for path in sys.argv[1:]:
    recording = open_recording(path)
    concat([recording.load(), recording])
    recording.close()
print([name for name in ("torch", "captum", "streamlit", "matplotlib") if name in sys.modules])
"""


def test_opening_and_joining_load_no_torch_and_warn_of_nothing(make_recording, tmp_path):
    paths = [str(save_recording(make_recording(), tmp_path / f"run{suffix}")) for suffix in FORMATS]
    command = [sys.executable, "-W", "error", "-c", OPEN_QUIETLY, *paths]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("[]\n", "")
