"""Labels: what a caller has at hand stands at the steps it belongs to, in the caller's order, padded by kind."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs

WIDTH, UNITS = 3, 5
LENGTHS = (2, 4, 1)
STEPS, ROWS = max(LENGTHS), len(LENGTHS)
NAN = np.nan


class Tagger(nn.Module):
    """An embedding of tokens, read by one recurrent module."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, WIDTH)
        self.rnn = nn.LSTM(WIDTH, UNITS, batch_first=True)

    def forward(self, tokens, lengths=None):
        x = self.embed(tokens)
        if lengths is not None:
            x = pack_padded_sequence(x, torch.as_tensor(lengths), batch_first=True, enforce_sorted=False)
        return self.rnn(x)


class Pair(nn.Module):
    """Two modules that read the same sequences at different rates."""

    def __init__(self):
        super().__init__()
        self.fast = nn.GRU(WIDTH, UNITS, batch_first=True)
        self.slow = nn.LSTM(UNITS, UNITS, batch_first=True)

    def forward(self, x):
        return self.slow(self.fast(x)[0][:, ::2])


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, UNITS)

    def forward(self, x):
        state = None
        for now in x.unbind(1):
            state = self.cell(now, state)


@pytest.fixture
def tokens():
    return torch.arange(ROWS * STEPS).reshape(ROWS, STEPS) % 9


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tagger()


TEXT = [["a", "b", "", ""], ["c", "d", "e", "f"], ["g", "", "", ""]]
NUMBERS = [[1, 2, NAN, NAN], [3, 4, 5, 6], [7, NAN, NAN, NAN]]
COUNTED = [[0, 1, NAN, NAN], [4, 5, 6, 7], [8, NAN, NAN, NAN]]
TRUE = [[True, True, False, False], [True] * 4, [True, False, False, False]]
ARANGE = torch.arange(12).reshape(3, 4)
KINDS = {
    "text in ragged lists": ([["a", "b"], ["c", "d", "e", "f"], ["g"]], TEXT),
    "strings as rows of characters": (["ab", "cdef", "g"], TEXT),
    "text in full rows": ([list("abxx"), list("cdef"), list("gxxx")], TEXT),
    "an array of text": (np.array([list("abxx"), list("cdef"), list("gxxx")]), TEXT),
    "booleans": ([[True, True], [True] * 4, [True]], TRUE),
    "a tensor of booleans": (torch.ones(3, 4, dtype=torch.bool), TRUE),
    "whole numbers": ([[1, 2], [3, 4, 5, 6], [7]], NUMBERS),
    "numbers with gaps": ([[None, 2], [3, 4.5, 5, 6], [7]], [[NAN, 2, NAN, NAN], [3, 4.5, 5, 6], [7, NAN, NAN, NAN]]),
    "a list of tensors": ([torch.tensor([1, 2]), torch.tensor([3, 4, 5, 6]), torch.tensor([7])], NUMBERS),
    "a tuple of tuples": (((1, 2), (3, 4, 5, 6), (7,)), NUMBERS),
    "a tensor of numbers": (ARANGE, COUNTED),
    "a list of equal tensors": (list(ARANGE), COUNTED),
    "a DataArray": (xr.DataArray(ARANGE.numpy()), COUNTED),
    "half precision": (ARANGE.to(torch.bfloat16), COUNTED),
    "a tensor that needs a gradient": (ARANGE.float().requires_grad_(), COUNTED),
}


def assert_label(recording, name, expected):
    label = recording[name]
    assert label.dims == ("sequence", "time")
    kind = type(expected[0][0])
    expected = np.array(expected, dtype={str: object, bool: bool}.get(kind, float))
    assert label.dtype == expected.dtype
    np.testing.assert_array_equal(label.values, expected)
    gs.validate(recording, values=True)


@pytest.mark.parametrize(("given", "expected"), KINDS.values(), ids=KINDS.keys())
def test_a_label_of_a_packed_call_is_padded_by_its_kind(model, tokens, given, expected):
    assert_label(gs.record(model, tokens, LENGTHS, labels={"mark": given}), "mark", expected)


@pytest.mark.parametrize(("given", "expected"), KINDS.values(), ids=KINDS.keys())
def test_a_label_given_for_the_whole_recording_is_padded_by_its_kind(model, tokens, given, expected):
    with gs.attach(model, labels={"mark": given}) as probe:
        model(tokens, LENGTHS)
    assert_label(probe.recording(), "mark", expected)


@pytest.mark.parametrize(("given", "expected"), KINDS.values(), ids=KINDS.keys())
def test_lengths_cut_an_unpacked_padded_batch(model, tokens, given, expected):
    recording = gs.record(model, tokens, labels={"mark": given}, lengths=LENGTHS)
    assert recording.length.values.tolist() == list(LENGTHS)
    assert_label(recording, "mark", expected)


@pytest.mark.parametrize(
    "lengths", [LENGTHS, list(LENGTHS), np.array(LENGTHS), torch.tensor(LENGTHS)], ids=lambda v: type(v).__name__
)
def test_lengths_may_come_as_any_kind_of_list(model, tokens, lengths):
    whole = gs.record(model, tokens)
    for recording in (gs.record(model, tokens, lengths=lengths), gs.record(model, tokens, labels={"lengths": lengths})):
        gs.validate(recording, values=True)
        assert recording.length.values.tolist() == list(LENGTHS)
        for row, length in enumerate(LENGTHS):
            here = {"sequence": row, "time": slice(0, length)}
            np.testing.assert_array_equal(recording.forget_gate[:, :, row, :length], whole.forget_gate.isel(here))


def test_padded_and_packed_batches_give_the_same_recording(model, tokens):
    packed = gs.record(model, tokens, LENGTHS)
    padded = gs.record(model, tokens, lengths=LENGTHS)
    xr.testing.assert_allclose(packed, padded, atol=1e-6)


def test_lengths_that_leave_the_last_steps_empty_shorten_the_recording(model, tokens):
    recording = gs.record(model, tokens, lengths=[2, 1, 1])
    gs.validate(recording, values=True)
    assert recording.sizes["time"] == 2


def test_each_call_is_labelled_by_what_was_annotated_before_it(model, tokens):
    with gs.attach(model) as probe:
        probe.annotate(token=["ab", "cdef", "g"], lengths=LENGTHS)
        model(tokens)
        model(tokens)
        probe.annotate(token=["xy"])
        probe.annotate(new=[[True, False]])
        model(tokens[:1, :2])
    recording = probe.recording()
    padding = [""] * STEPS
    words = [["a", "b", "", ""], list("cdef"), ["g", "", "", ""], padding, padding, padding, ["x", "y", "", ""]]
    assert_label(recording, "token", words)
    assert recording.new.values.sum() == 1
    assert bool(recording.new[6, 0])
    assert recording.length.values.tolist() == [*LENGTHS, STEPS, STEPS, STEPS, 2]


def test_a_function_labels_every_call_from_its_arguments(model, tokens):
    def labels(args, kwargs):
        return {"token": args[0], "lengths": kwargs["lengths"]}

    with gs.attach(model, labels=labels) as probe:
        model(tokens, lengths=LENGTHS)
        model(tokens[:, :2], lengths=(2, 1, 2))
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [*LENGTHS, 2, 1, 2]
    np.testing.assert_array_equal(recording.token.values[1], tokens[1].numpy())
    np.testing.assert_array_equal(recording.token.values[3], [0, 1, NAN, NAN])
    xr.testing.assert_equal(
        gs.record(model, tokens, inputs_kwargs={"lengths": LENGTHS}, labels=labels).length, recording.length[:3]
    )


def test_labels_for_the_whole_recording_span_several_calls(model, tokens):
    with gs.attach(model, labels={"row": [[n] * STEPS for n in range(6)], "short": [list("abcd")] * 6}) as probe:
        model(tokens)
        model(tokens)
    recording = probe.recording()
    assert_label(recording, "row", [[float(n)] * STEPS for n in range(6)])


def test_lengths_for_the_whole_recording_span_several_calls(model, tokens):
    with gs.attach(model, lengths=[*LENGTHS, 4, 4, 3]) as probe:
        model(tokens)
        model(tokens)
    for _ in range(2):
        recording = gs.validate(probe.recording(), values=True)
        assert recording.length.values.tolist() == [*LENGTHS, 4, 4, 3]


def test_labels_of_a_loop_of_cells_stand_at_their_steps():
    x = torch.zeros(ROWS, STEPS, WIDTH)
    words = ["abcd", "efgh", "ijkl"]
    recording = gs.record(Loop(), x, labels={"token": words, "lengths": LENGTHS})
    assert_label(recording, "token", [["a", "b", "", ""], list("efgh"), ["i", "", "", ""]])
    assert recording.length.values.tolist() == list(LENGTHS)


def test_labels_of_two_loops_of_cells_stand_with_their_own_loop():
    model = Loop()
    with gs.attach(model) as probe:
        for words in (["abcd", "efgh"], ["xy"]):
            probe.annotate(token=words)
            model(torch.zeros(len(words), len(words[0]), WIDTH))
    assert_label(probe.recording(), "token", [list("abcd"), list("efgh"), ["x", "y", "", ""]])


def test_a_module_called_without_its_model_is_labelled_too(model, tokens):
    with gs.attach(model) as probe:
        probe.annotate(token=["abcd", "efgh", "ijkl"])
        model.rnn(model.embed(tokens))
    assert_label(probe.recording(), "token", [list("abcd"), list("efgh"), list("ijkl")])


def test_one_sequence_may_be_given_as_a_flat_list_or_a_text():
    module, x = nn.GRU(WIDTH, UNITS), torch.zeros(STEPS, WIDTH)
    for given in ("abcd", list("abcd"), [list("abcd")], ["abcd"]):
        assert_label(gs.record(module, x, labels={"token": given}), "token", [list("abcd")])
    words = ["one", "two", "three", "four"]
    assert_label(gs.record(module, x, labels={"word": words}), "word", [words])
    assert_label(gs.record(module, x, labels={"number": [1, 2, 3, 4]}), "number", [[1.0, 2.0, 3.0, 4.0]])


def test_one_step_may_be_labelled_by_a_flat_list():
    module = nn.GRU(WIDTH, UNITS, batch_first=True)
    recording = gs.record(module, torch.zeros(2, 1, WIDTH), labels={"word": ["one", "two"], "number": [1, 2]})
    assert_label(recording, "word", [["one"], ["two"]])
    assert_label(recording, "number", [[1.0], [2.0]])


def test_boundary_marks_the_first_step_of_a_segment(model, tokens):
    marks = [[True, False, False, True]] * ROWS
    recording = gs.record(model, tokens, labels={"boundary": marks})
    assert_label(recording, "boundary", marks)


def test_packed_labels_stand_in_the_callers_order_not_in_torchs():
    module, x = nn.LSTM(1, UNITS, batch_first=True), torch.arange(12.0).reshape(3, 4, 1)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    recording = gs.record(module, packed, labels={"value": x[..., 0]})
    assert_label(recording, "value", [[0, 1, NAN, NAN], [4, 5, 6, 7], [8, NAN, NAN, NAN]])


def test_a_label_that_fits_one_of_two_modules_is_said_to_be_left_out_of_the_other():
    model, x = Pair(), torch.zeros(2, 6, WIDTH)
    with gs.attach(model) as probe:
        probe.annotate(token=["abcdef", "ghijkl"], coarse=["abc", "def"])
        model(x)
    fast, slow = probe.recording("fast"), probe.recording("slow")
    assert_label(fast, "token", [list("abcdef"), list("ghijkl")])
    assert_label(slow, "coarse", [list("abc"), list("def")])
    assert (fast.labels_left_out, slow.labels_left_out) == ("coarse", "token")
    assert "coarse" not in fast.coords
    assert "token" not in slow.coords
    gs.validate(probe.tree())


def test_a_label_for_the_whole_recording_that_fits_one_of_two_modules_is_left_out_of_the_other():
    model, x = Pair(), torch.zeros(2, 6, WIDTH)
    with gs.attach(model, labels={"token": ["abcdef", "ghijkl"]}) as probe:
        model(x)
    assert "token" in probe.recording("fast").coords
    assert probe.recording("slow").labels_left_out == "token"


def test_lengths_that_fit_one_of_two_modules_leave_the_other_as_it_is():
    model, x = Pair(), torch.zeros(2, 6, WIDTH)
    for labels, kwargs in (({"lengths": [5, 4]}, {}), (None, {"lengths": [5, 4]})):
        with gs.attach(model, labels=labels, **kwargs) as probe:
            model(x)
        assert probe.recording("fast").length.values.tolist() == [5, 4]
        assert probe.recording("slow").length.values.tolist() == [3, 3]
        assert probe.recording("slow").labels_left_out == "lengths"


def test_labels_left_over_from_a_call_that_failed_do_not_reach_the_next(model, tokens):
    with gs.attach(model) as probe:
        probe.annotate(token=["abcd", "efgh", "ijkl"])
        with pytest.raises(IndexError):
            model(tokens + 100)
        model(tokens)
    assert "token" not in probe.recording().coords


def test_labels_given_after_a_call_that_failed_are_those_of_the_next_and_the_only_ones(model, tokens):
    with gs.attach(model) as probe:
        probe.annotate(token=["abcd", "efgh", "ijkl"])
        with pytest.raises(IndexError):
            model(tokens + 100)
        probe.annotate(mark=tokens)
        model(tokens)
    assert "token" not in probe.recording().coords
    np.testing.assert_array_equal(probe.recording().mark.values, tokens.numpy())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt], ids=lambda error: error.__name__)
def test_labels_reach_the_calls_after_an_interrupted_one(model, tokens, error):
    fail = [True]

    def interrupt(module, args):
        if fail:
            fail.clear()
            raise error

    model.embed.register_forward_pre_hook(interrupt)
    with gs.attach(model, labels=lambda args, kwargs: {"token": args[0]}) as probe:
        with pytest.raises(error):
            model(tokens)
        model(tokens)
        probe.annotate(mark=tokens)
        model(tokens)
    recording = probe.recording()
    np.testing.assert_array_equal(recording.token.values, np.tile(tokens.numpy(), (2, 1)))
    np.testing.assert_array_equal(recording.mark.values[ROWS:], tokens.numpy())
    assert bool(np.isnan(recording.mark.values[:ROWS]).all())


def test_a_model_that_calls_itself_is_labelled_as_one_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, x, again=True):
            x, _ = self.rnn(x)
            return self(x, again=False) if again else x

    calls = []
    with gs.attach(Twice(), labels=lambda args, kwargs: calls.append(kwargs) or {"token": ["abcd"]}) as probe:
        probe.model(torch.zeros(1, 4, WIDTH))
    assert calls == [{}]
    assert_label(probe.recording(), "token", [list("abcd"), list("abcd")])


MISFITS = {
    "too few rows": (["abcd", "efgh"], "one row for each of 3 sequences; 2 came"),
    "too many rows": (["abcd"] * 4, "one row for each of 3 sequences; 4 came"),
    "time first": ([["a", "b", "c"]] * 4, "Transpose them"),
    "rows too long": (["abcde", "efgh", "ijkl"], "sequence 0 has 4 steps and 5 labels"),
    "rows all too short": (["abc", "efg", "ijk"], "the longest sequence has 4 steps, the longest row 3 labels"),
    "mixed kinds": ([["a", 1, "c", "d"], list("efgh"), list("ijkl")], "int, str came"),
    "vectors": (torch.zeros(3, 4, 2), "one per step"),
    "objects": ([[{}] * 4] * 3, "dict came"),
    "a number": (3, "int came"),
    "nothing": (None, "NoneType came"),
    "a mapping": ({"a": 1}, "dict came"),
    "lone surrogates": (["abc\ud800", "efgh", "ijkl"], "a lone surrogate came"),
    "a number too large": ([[10**5000] * 4] * 3, "must be numbers that fit into float64"),
    "unequal tables": ([np.zeros((4, 2)), np.zeros((4, 3)), np.zeros((4, 2))], "ndarray came"),
}


def assert_one_sentence(message):
    assert "\n" not in message
    assert " must " in message
    assert message.endswith(".")
    assert len(message) < 500


@pytest.mark.parametrize(("given", "said"), MISFITS.values(), ids=MISFITS.keys())
def test_labels_that_do_not_fit_are_refused_and_the_recording_is_kept(model, tokens, given, said):
    probe = gs.attach(model)
    with probe:
        probe.annotate(token=given)
        with pytest.raises(ValueError, match="'token'") as caught:
            model(tokens)
        probe.annotate(token=["abcd", "efgh", "ijkl"])
        model(tokens)
    assert said in str(caught.value)
    assert_one_sentence(str(caught.value))
    recording = gs.validate(probe.recording(), values=True)
    assert recording.sizes["sequence"] == 2 * ROWS
    assert_label(recording, "token", [[""] * 4] * 3 + [list("abcd"), list("efgh"), list("ijkl")])


@pytest.mark.parametrize(("given", "said"), MISFITS.values(), ids=MISFITS.keys())
def test_labels_that_do_not_fit_the_whole_recording_are_refused_and_the_recording_is_kept(model, tokens, given, said):
    probe = gs.attach(model, labels={"token": given, "good": ["abcd", "efgh", "ijkl"]})
    with pytest.raises(ValueError, match="'token'") as caught, probe:
        model(tokens)
    assert said in str(caught.value)
    assert_one_sentence(str(caught.value))
    recording = gs.validate(probe.recording(), values=True)
    assert_label(recording, "good", [list("abcd"), list("efgh"), list("ijkl")])
    assert recording.labels_left_out == "token"


TENSORS_WITHOUT_VALUES = {
    "sparse": lambda: torch.eye(3, 4).to_sparse(),
    "meta": lambda: torch.ones(3, 4, device="meta"),
}


@pytest.mark.parametrize("make", TENSORS_WITHOUT_VALUES.values(), ids=TENSORS_WITHOUT_VALUES)
def test_labels_whose_values_cannot_be_read_are_refused_and_the_recording_is_kept(model, tokens, make):
    with gs.attach(model) as probe:
        probe.annotate(token=make())
        with pytest.raises(ValueError, match="must be dense tensors with values") as caught:
            model(tokens)
    assert_one_sentence(str(caught.value))
    assert probe.recording().sizes["sequence"] == ROWS


WRONG_LENGTHS = {
    "too few": [1, 2],
    "too many": [1, 2, 3, 4],
    "too long": [1, 2, 5],
    "negative": [1, 2, -1],
    "parts of steps": [1, 2, 2.5],
    "not a number": [1, 2, NAN],
    "text": ["a", "b", "c"],
    "one number": 3,
    "a mask": [[True] * 4] * 3,
    "ragged": [[1], [1, 2], [1]],
}


@pytest.mark.parametrize("lengths", WRONG_LENGTHS.values(), ids=WRONG_LENGTHS.keys())
def test_lengths_that_do_not_fit_are_refused_and_the_recording_is_kept(model, tokens, lengths):
    with gs.attach(model) as probe:
        probe.annotate(lengths=lengths)
        with pytest.raises(ValueError, match="lengths must") as caught:
            model(tokens)
    assert_one_sentence(str(caught.value))
    assert gs.validate(probe.recording(), values=True).length.values.tolist() == [STEPS] * ROWS


@pytest.mark.parametrize("lengths", WRONG_LENGTHS.values(), ids=WRONG_LENGTHS.keys())
def test_lengths_that_do_not_fit_the_whole_recording_are_refused_and_it_is_kept(model, tokens, lengths):
    probe = gs.attach(model, lengths=lengths)
    with pytest.raises(ValueError, match="lengths must") as caught, probe:
        model(tokens)
    assert_one_sentence(str(caught.value))
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [STEPS] * ROWS
    assert recording.labels_left_out == "lengths"


def test_masked_numbers_are_missing_labels(model, tokens):
    values = np.arange(12.0).reshape(ROWS, STEPS)
    recording = gs.record(model, tokens, labels={"value": np.ma.masked_array(values, values == 5)})
    np.testing.assert_array_equal(recording.value, np.where(values == 5, NAN, values))


def test_labels_that_name_their_dimensions_are_laid_by_name(model):
    values = np.arange(9.0).reshape(3, 3)
    labels = {"value": xr.DataArray(values.T, dims=("time", "sequence"))}
    np.testing.assert_array_equal(gs.record(model, torch.ones(3, 3, dtype=int), labels=labels).value, values)


def test_labels_that_change_their_kind_are_refused_and_the_recording_is_kept(model, tokens):
    with gs.attach(model) as probe:
        probe.annotate(token=["abcd", "efgh", "ijkl"])
        model(tokens)
        probe.annotate(token=tokens)
        with pytest.raises(ValueError, match="'token' must be of one kind in all calls") as caught:
            model(tokens)
    assert_one_sentence(str(caught.value))
    recording = gs.validate(probe.recording(), values=True)
    assert_label(recording, "token", [list("abcd"), list("efgh"), list("ijkl")] + [[""] * 4] * 3)


TAKEN = (
    "time",
    "unit",
    "layer",
    "length",
    "stream",
    "start",
    "call",
    "block",
    "gate",
    "weight_hh",
    "initial_cell_state",
)
SIGNALS = ("forget_gate", "hidden_state", "candidate_preactivation")
COMPUTED = ("log_retention_sum", "retention_zeros", "hidden_state_gradient", "cell_state_gradient")
NOT_ON_DISK = ("", "a/b", "__x", "a\nb", ".", "zarr.json")


@pytest.mark.parametrize("name", [*TAKEN, *SIGNALS, *COMPUTED, *NOT_ON_DISK])
def test_names_that_the_recording_cannot_give_a_label_are_refused_at_once(model, tokens, name):
    for refused in (
        lambda: gs.attach(model, labels={name: ["abcd"] * 3}),
        lambda: gs.record(model, tokens, labels={name: ["abcd"] * 3}),
        lambda: gs.attach(model).annotate(**{name: ["abcd"] * 3}),
    ):
        with pytest.raises(ValueError, match="labels must") as caught:
            refused()
        assert_one_sentence(str(caught.value))
        assert repr(name) in str(caught.value)


def test_a_name_too_long_for_a_file_is_refused_at_once(model):
    gs.attach(model).annotate(**{"a" * 255: []})
    with pytest.raises(ValueError, match="at most 255 bytes") as caught:
        gs.attach(model).annotate(**{"a" * 256: []})
    assert_one_sentence(str(caught.value))


def test_a_label_may_be_called_self(model, tokens):
    assert_label(gs.record(model, tokens, labels={"self": ["abcd"] * 3}), "self", [list("abcd")] * 3)


def test_a_name_that_is_no_text_is_refused_by_a_sentence(model, tokens):
    labels = {3: ["abcd"] * 3}
    for refused in (
        lambda: gs.attach(model, labels=labels),
        lambda: gs.record(model, tokens, labels=labels),
        lambda: gs.record(model, tokens, labels=lambda args, kwargs: labels),
    ):
        with pytest.raises(TypeError, match="labels must be named by text; 3 came") as caught:
            refused()
        assert_one_sentence(str(caught.value))


@pytest.mark.parametrize("labels", [["abcd"], "abcd", 3, torch.zeros(3, 4)], ids=lambda v: type(v).__name__)
def test_labels_without_names_are_refused_at_once(model, tokens, labels):
    for refused in (lambda: gs.attach(model, labels=labels), lambda: gs.record(model, tokens, labels=labels)):
        with pytest.raises(TypeError, match="labels must be a mapping") as caught:
            refused()
        assert_one_sentence(str(caught.value))


def test_a_function_that_gives_no_mapping_is_refused_by_a_sentence(model, tokens):
    with gs.attach(model, labels=lambda args, kwargs: ["abcd"]) as probe:
        with pytest.raises(TypeError, match="labels must") as caught:
            model(tokens)
        assert_one_sentence(str(caught.value))
        model.rnn(model.embed(tokens))
    assert probe.recording().sizes["sequence"] == ROWS


@pytest.mark.parametrize("as_given", [list, np.asarray], ids=["lists", "array"])
def test_boundary_given_as_zeros_and_ones_is_made_of_booleans(model, tokens, as_given):
    marks = [[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]
    recording = gs.record(model, tokens, labels={"boundary": as_given(marks)})
    assert recording.boundary.dtype == bool
    assert recording.boundary.values.tolist() == np.array(marks, bool).tolist()


@pytest.mark.parametrize("value", [2, "x"])
def test_boundary_of_anything_else_is_refused(model, tokens, value):
    marks = [[value] * tokens.shape[1]] * tokens.shape[0]
    with pytest.raises(ValueError, match="'boundary' must be booleans"):
        gs.record(model, tokens, labels={"boundary": marks})


def test_labels_that_come_after_the_last_call_raise_and_lose_nothing(model, tokens):
    probe = gs.attach(model)

    def block():
        with probe:
            model(tokens)
            probe.annotate(word=[["a"] * STEPS] * ROWS)

    with pytest.raises(ValueError, match=r"must come before the call .* 'word' reached no call"):
        block()
    assert probe.recording().sizes["sequence"] == ROWS
