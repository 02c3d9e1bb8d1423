"""The schema refuses every recording that breaks it, and names what breaks it."""

import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.schema import SchemaError, as_label, label_names, normalise, signal_names, stepwise_names, validate
from gatescope.probe.text import escape, escape_all, unescape, unescape_all

Spoil = Callable[[xr.Dataset], xr.Dataset]


def test_a_recording_is_given_back_unchanged(make_recording):
    recording = make_recording()
    before = recording.copy(deep=True)
    assert validate(recording, values=True) is recording
    xr.testing.assert_identical(recording, before)


def test_a_tree_is_given_back_unchanged(make_recording):
    tree = xr.DataTree.from_dict({"encoder.rnn": make_recording(), "decoder": make_recording(units=2)})
    assert validate(tree) is tree


def put(name: str, place: tuple[int, ...], value: object) -> Spoil:
    def spoil(recording: xr.Dataset) -> xr.Dataset:
        changed = recording.copy(deep=True)
        changed[name].values[place] = value
        return changed

    return spoil


def attr(name: str, key: str, value: object) -> Spoil:
    """Set one attribute (None: delete it) of a variable, or of the Dataset where `name` is empty."""

    def spoil(recording: xr.Dataset) -> xr.Dataset:
        changed = recording.copy(deep=True)
        attrs = changed[name].attrs if name else changed.attrs
        attrs[key] = value
        if value is None:
            del attrs[key]
        return changed

    return spoil


def coord(name: str, change: Callable[[xr.DataArray], object]) -> Spoil:
    return lambda recording: recording.assign_coords({name: change(recording[name])})


STEPS = ("sequence", "time")

# the sentence must say what stands on the left; the first recording has lengths 7, 12 and 1
BROKEN: dict[str, Spoil] = {
    "'schema' must be 'gatescope.recording/1'; 'nothing' came": attr("", "schema", None),
    "'schema' must be 'gatescope.recording/1'; 'gatescope.recording/2' came": attr(
        "", "schema", "gatescope.recording/2"
    ),
    "attribute 'note' of the recording is a list": attr("", "note", [1]),
    "attribute 'training' of the recording is a bool": attr("", "training", True),
    "attribute 'lower' of 'forget_gate' is a tuple": attr("forget_gate", "lower", (0, 1)),
    "'coordinates' of the recording is. Rename": attr("", "coordinates", "token"),
    "attribute 'cell' as text; nothing came": attr("", "cell", None),
    "attribute 'cell' as text; 3 came": attr("", "cell", 3),
    "attribute 'parity' as a number; 'small' came": attr("", "parity", "small"),
    "'retention': retention must be a signal's name": attr("", "retention", "f * 2"),
    "'retention' must name a signal of the recording; 'keep_gate' came": attr("", "retention", "keep_gate"),
    "'1 - keep_gate' came": attr("", "retention", "1 - keep_gate"),
    "must have dimension 'layer'": lambda r: r.isel(layer=0),
    "must have dimension 'time'": lambda r: r.isel(time=0),
    "'forget_gate' must have dimensions layer, direction, sequence, time, unit": lambda r: r.assign(
        forget_gate=r["forget_gate"].transpose("layer", "direction", "time", "sequence", "unit")
    ),
    "'candidate' must have dimensions": lambda r: r.assign(candidate=r["candidate"].isel(layer=0)),
    "'weight_hh' must have dimensions layer, direction, gate, unit, source": lambda r: r.assign(
        weight_hh=r["weight_hh"].transpose("layer", "direction", "gate", "source", "unit")
    ),
    "'initial_cell_state' must have dimensions": lambda r: r.assign(initial_cell_state=r["initial_cell_state"].T),
    "'cell_state' must be one of float16, float32, float64; int64 came": lambda r: r.assign(
        cell_state=r["cell_state"].fillna(0).astype(np.int64).assign_attrs(r["cell_state"].attrs)
    ),
    "'unit' must have an index coordinate": lambda r: r.drop_vars("unit"),
    "'unit' must be int64; float64": coord("unit", lambda unit: unit.values * 1.0),
    "'unit' must not repeat a value; 0, 0, 0": coord("unit", lambda unit: unit.values * 0),
    "'time' must count the steps 0 to 5; 3, 4, 5": lambda r: r.isel(time=slice(3, 9)),
    "'direction' must be forward, backward; sideways": coord(
        "direction", lambda _: np.array(["forward", "sideways"], dtype=object)
    ),
    "coordinate 'length' over sequence; nothing came": lambda r: r.drop_vars("length"),
    "coordinate 'call' over sequence, time; sequence came": coord("call", lambda c: ("sequence", c.values[:, 0])),
    "'stream' must be int64; int32": coord("stream", lambda stream: stream.astype(np.int32)),
    "'start' must be text": coord("start", lambda start: ("sequence", np.arange(start.size))),
    "'start' must be one of given, zero, continued, imposed; guessed": put("start", (0,), "guessed"),
    "'block' must be int64 over unit": lambda r: r.assign_coords(block=("unit", np.ones(5))),
    "'length' must lie in 0 to 12, the size of 'time'; it runs from 1 to 13": put("length", (0,), 13),
    "it runs from -1 to": put("length", (0,), -1),
    "sequence 0 of length 6 has 0 at time 6": put("length", (0,), 6),
    "sequence 0 of length 7 has -1 at time 2": put("call", (0, 2), -1),
    "Label 'token' must be '' where": put("token", (0, 7), "x"),
    "Label 'boundary' must be False where": put("boundary", (2, 1), True),
    "Label 'value' must be nan where": put("value", (0, 11), 0.0),
    "Label 'value' must be text (object), bool or float64; float32": coord("value", lambda v: v.astype(np.float32)),
    "'token' must be text": put("token", (0, 0), 3),
    "Label 'speaker' must lie over sequence, time; sequence": lambda r: r.assign_coords(
        speaker=("sequence", [1.0, 2, 3])
    ),
    "text without '/'": lambda r: r.rename(token="a/b"),
    "'a\\\\x00b' came": lambda r: r.rename(token="a\0b"),
    "and not 'zarr.json'": lambda r: r.rename(token="zarr.json"),
    "of at most 255 bytes": lambda r: r.rename(token="ü" * 128),
    "at least one signal": lambda r: r.drop_vars(signal_names(r)),
    "'note' must be numeric": lambda r: r.assign(note=("sequence", np.array(["a", "b", "c"], dtype=object))),
    "'forget_gate' must have a role of gate, write": attr("forget_gate", "role", "door"),
    "'forget_gate' must have attribute 'symbol' as text; None": attr("forget_gate", "symbol", None),
    "'forget_gate' must have numbers as 'lower' and 'upper'": attr("forget_gate", "upper", "one"),
    "'forget_gate' must be NaN where": put("forget_gate", (0, 0, 0, 7, 0), 0.5),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_recording_is_refused_in_a_sentence_that_names_what_is_wrong(make_recording, sentence):
    with pytest.raises(SchemaError, match=re.escape(sentence).replace(r"\\\\", r"\\")) as caught:
        validate(BROKEN[sentence](make_recording()))
    assert "\n" not in str(caught.value)


def test_a_broken_node_is_named(make_recording):
    tree = xr.DataTree.from_dict({"a": make_recording(), "b": make_recording().drop_vars("length")})
    with pytest.raises(SchemaError, match="Node 'b': A recording must have coordinate 'length'"):
        validate(tree)


@pytest.mark.parametrize(
    ("shape", "sentence"), [({}, "a node per module"), ({"/": 1}, "root .* must be empty"), ({"a/b": 1}, "one level")]
)
def test_a_tree_of_another_shape_is_refused(make_recording, shape, sentence):
    tree = xr.DataTree.from_dict(dict.fromkeys(shape, make_recording()))
    with pytest.raises(SchemaError, match=sentence):
        validate(tree)


@pytest.mark.parametrize("name", ["zarr.json", "a\0b", "\ud800", "ü" * 128])
def test_a_node_that_files_cannot_name_is_refused(make_recording, name):
    with pytest.raises(SchemaError, match="A node's name must be Unicode text") as caught:
        validate(xr.DataTree(children={name: xr.DataTree(make_recording())}))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("thing", [None, 3, {"a": 1}, xr.DataArray(1)])
def test_what_is_no_dataset_is_a_type_error(thing):
    with pytest.raises(TypeError, match="must be an xarray Dataset or DataTree"):
        validate(thing)


def test_a_choice_of_signals_layers_sequences_and_units_is_still_a_recording(make_recording):
    recording = make_recording()
    validate(recording[["cell_state", "hidden_state"]])
    validate(recording.isel(layer=[1], direction=[1], sequence=[2, 0], unit=[4, 1]))
    validate(recording.isel(sequence=[]))


def test_what_is_derived_may_stand_beside_the_signals(make_recording):
    recording = make_recording()
    gate = recording["forget_gate"]
    recording["log_retention_sum"] = np.log(gate.astype(np.float64)).cumsum("time").where(gate.notnull()).drop_attrs()
    recording["retention_zeros"] = (gate == 0).astype(np.int64).drop_attrs()
    recording["output_jacobian"] = gate.expand_dims(target=np.arange(2)).drop_attrs()
    recording["forget_gate_preactivation"] = gate.copy()
    validate(recording, values=True)
    assert "log_retention_sum" in stepwise_names(recording)
    assert signal_names(recording) == signal_names(make_recording())


def test_padding_of_what_is_not_loaded_is_read_only_on_request(make_recording, tmp_path):
    recording = put("forget_gate", (0, 0, 0, 7, 0), 0.5)(make_recording())
    validate(recording, values=False)
    with pytest.raises(SchemaError, match="'forget_gate' must be NaN"):
        validate(recording, values=True)


def test_names_are_told_apart(make_recording):
    recording = make_recording()
    assert label_names(recording) == ["token", "boundary", "value"]
    assert signal_names(recording) == [
        "input_gate", "forget_gate", "candidate", "output_gate", "cell_state", "hidden_state"
    ]  # fmt: skip


def test_normalising_repairs_what_files_change_and_nothing_else(make_recording):
    recording = make_recording()
    foreign = recording.assign_coords(
        direction=recording["direction"].values.astype("U"),
        token=recording["token"].astype("U"),
        unit=np.arange(5, dtype=np.int32),
        call=recording["call"].astype(np.int16),
    ).assign_attrs(parity=np.float64(1e-7))
    closed: list[str] = []
    foreign.set_close(lambda: closed.append("file"))
    result = normalise(foreign)
    result.close()
    assert closed == ["file"]
    xr.testing.assert_identical(result, recording)
    assert list(result.coords) == list(foreign.coords)
    assert {k: v.dtype for k, v in result.variables.items()} == {k: v.dtype for k, v in recording.variables.items()}
    assert type(result.attrs["parity"]) is float


@pytest.mark.parametrize("values", [[[1, "a"]], [[None]], [[1j]], [["\ud800"]], [[b"a"]], [["a", None]]])
def test_a_label_of_mixed_or_strange_values_is_refused(values):
    with pytest.raises(SchemaError, match="must hold Unicode text, booleans or numbers"):
        as_label(np.array(values, dtype=object))


@pytest.mark.parametrize("text", ["", "a", "\0", "\\", "\\0", "\\\\0", "\0\\", "\ud800\udfff", "\\ud800", "ü\\u00fc"])
def test_escaped_text_holds_no_trap_and_comes_back(text):
    stored = escape(text)
    assert "\0" not in stored
    stored.encode()
    assert unescape(stored) == text
    array = np.array([[text, "b"]], dtype=object)
    assert unescape_all(escape_all(array)).tolist() == array.tolist()


def test_the_schema_needs_no_torch_and_no_file_format():
    code = "import sys, gatescope.probe.schema, gatescope.probe.store, gatescope.probe.concat; print([n for n in "
    code += "('torch', 'zarr', 'h5netcdf', 'h5py', 'captum', 'streamlit') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
