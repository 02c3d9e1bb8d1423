"""Contextual decomposition: by hand, against a loop of its own, exact everywhere, and on known interactions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gatescope as gs
from gatescope.probe import decomposition

Array = np.ndarray


class Tagger(nn.Module):
    """An embedding, an LSTM and a head that reads it at every step."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 5)
        self.rnn = nn.LSTM(5, 6, **options)
        shown = (options.get("proj_size") or 6) * (1 + options.get("bidirectional", False))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(shown, 3)
        self.other = nn.Linear(3, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.drop(self.rnn(self.embedding(tokens))[0]))


class Classifier(Tagger):
    """The same of packed rows, with a head that reads the last step of each."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        packed = pack_padded_sequence(self.embedding(tokens), lengths, enforce_sorted=False)
        output, _ = pad_packed_sequence(self.rnn(packed)[0])
        return self.head(output[lengths - 1, torch.arange(len(lengths))])


def tagger(seed: int = 0, kind: type[Tagger] = Tagger, **options: Any) -> Tagger:
    torch.manual_seed(seed)
    return kind(**options).double()


def tokens(steps: int = 7, sequences: int = 3) -> Tensor:
    return torch.randint(9, (steps, sequences), generator=torch.Generator().manual_seed(1))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def shapley(a: Any, b: Any, bias: Any, squash: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Parts of two terms and the bias, averaged over the orders in which the bias comes first."""
    zero = squash(bias)
    one = (squash(bias + a) - zero, squash(bias + a + b) - squash(bias + a))  # a, then b
    two = (squash(bias + b + a) - squash(bias + b), squash(bias + b) - zero)  # b, then a
    return (one[0] + two[0]) / 2, (one[1] + two[1]) / 2, zero


def by_terms(lstm: nn.LSTM, x: Array, start: int, stop: int) -> tuple[Array, Array]:
    """The method as the paper has it, term by term: relevant and irrelevant h (time, unit) of one sequence."""
    w, u = (getattr(lstm, f"weight_{name}_l0").detach().numpy() for name in ("ih", "hh"))
    bias = np.split((lstm.bias_ih_l0 + lstm.bias_hh_l0).detach().numpy(), 4)
    size = lstm.hidden_size
    beta, gamma, beta_c, gamma_c = (np.zeros(size) for _ in range(4))
    found: tuple[list[Array], list[Array]] = ([], [])
    for time, row in enumerate(x):
        inside = start <= time < stop
        rel, irr = u @ beta + inside * (w @ row), u @ gamma + (not inside) * (w @ row)
        terms = [
            shapley(a, b, c, np.tanh if place == 2 else sigmoid)
            for place, (a, b, c) in enumerate(zip(np.split(rel, 4), np.split(irr, 4), bias, strict=True))
        ]
        new = {True: np.zeros(size), False: np.zeros(size)}
        for left, i in enumerate(terms[0]):  # 0 relevant, 1 irrelevant, 2 bias
            for right, g in enumerate(terms[2]):
                relevant = inside if left == right == 2 else 1 not in (left, right)
                new[relevant] = new[relevant] + i * g
        for left, f in enumerate(terms[1]):
            new[left != 1] = new[left != 1] + f * beta_c
            new[False] = new[False] + f * gamma_c
        beta_c, gamma_c = new[True], new[False]
        o = sigmoid(np.split(rel + irr, 4)[3] + bias[3])
        shown = shapley(beta_c, gamma_c, 0.0, np.tanh)
        beta, gamma = o * shown[0], o * shown[1]
        found[0].append(beta)
        found[1].append(gamma)
    return np.array(found[0]), np.array(found[1])


def test_two_steps_of_one_unit_are_those_worked_out_by_hand() -> None:
    # Only the candidate reads anything: x, with weight 1. Gates stand at sigmoid(0) = 1/2; no biases.
    lstm = nn.LSTM(1, 1, bias=False).double()
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.tensor([[0.0], [0.0], [1.0], [0.0]]))
        lstm.weight_hh_l0.zero_()
    found = gs.contextual_decomposition(
        lstm, torch.tensor([[[2.0]], [[-1.0]]], dtype=torch.float64), phrase=slice(0, 1)
    )
    relevant, irrelevant = (found[f"hidden_{name}"].values.ravel() for name in ("relevant", "irrelevant"))
    # step 1, in the phrase: c = tanh(2) / 2, all of it relevant
    first = math.tanh(2) / 2
    assert relevant[0] == pytest.approx(math.tanh(first) / 2, abs=1e-15)
    assert irrelevant[0] == 0
    # step 2: half of c is kept, relevant; -tanh(1) / 2 comes in, irrelevant; tanh of their sum, either order
    beta, gamma = first / 2, -math.tanh(1) / 2
    whole = math.tanh(beta + gamma)
    assert relevant[1] == pytest.approx(0.5 * (math.tanh(beta) + whole - math.tanh(gamma)) / 2, abs=1e-15)
    assert irrelevant[1] == pytest.approx(0.5 * (math.tanh(gamma) + whole - math.tanh(beta)) / 2, abs=1e-15)


def test_the_biases_product_belongs_to_the_phrase_on_its_steps_and_to_the_rest_on_others() -> None:
    # No weights at all: every gate is 1/2 and the candidate tanh(1), from its bias alone.
    lstm = nn.LSTM(1, 1).double()
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.zero_()
        lstm.bias_hh_l0[2] = 1.0
    found = gs.contextual_decomposition(lstm, torch.zeros(2, 1, 1, dtype=torch.float64), phrase=slice(1, 2))
    written = math.tanh(1) / 2
    beta, gamma = written, written / 2  # of step 2 relevant; of step 1, half of it kept, irrelevant
    whole = math.tanh(beta + gamma)
    assert found["hidden_relevant"].values.ravel() == pytest.approx(
        [0, 0.5 * (math.tanh(beta) + whole - math.tanh(gamma)) / 2], abs=1e-15
    )
    assert found["hidden_irrelevant"].values.ravel()[0] == pytest.approx(math.tanh(written) / 2, abs=1e-15)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (2, 5), (6, 7), (0, 7)])
def test_a_layer_is_split_as_the_papers_sums_and_products_are_term_by_term(start: int, stop: int) -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5).double()
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.mul_(3)
    x = torch.randn(7, 2, 4, dtype=torch.float64)
    found = gs.contextual_decomposition(lstm, x, phrase=[(start, stop)])
    for sequence in range(2):
        expected = by_terms(lstm, x[:, sequence].numpy(), start, stop)
        for name, values in zip(("relevant", "irrelevant"), expected, strict=True):
            ours = found[f"hidden_{name}"].isel(phrase=0, direction=0, sequence=sequence).values
            np.testing.assert_allclose(ours, values, rtol=0, atol=1e-14)


@pytest.mark.parametrize("biases", ["phrase", "rest"])
def test_steps_of_zero_input_contribute_only_what_biases_write(biases: Any) -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(2, 3, num_layers=2, bidirectional=True).double()
    x = torch.randn(5, 1, 2, dtype=torch.float64)
    x[2:4] = 0
    found = gs.contextual_decomposition(lstm, x, phrase=slice(2, 4), biases=biases)
    assert (float(np.abs(found["hidden_relevant"]).max()) > 0) == (biases == "phrase")
    assert found.attrs["parity"] < 1e-12


def test_what_a_flip_flop_says_is_due_to_the_last_pulse_of_its_bit() -> None:
    model, sample = gs.load_example("flip-flop", size=60)
    found = gs.contextual_decomposition(model, torch.from_numpy(sample.inputs), biases="rest")
    pulses, right = sample.inputs[0], 0
    for bit in range(3):
        parts = np.abs(found["output_relevant"].isel(sequence=0, output=bit).transpose("time", "phrase").values)
        for time in range(60):
            right += parts[time].argmax() == np.flatnonzero(pulses[: time + 1, bit])[-1]
    assert right > 0.95 * 180


KINDS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "no bias": {"bias": False},
    "three layers": {"num_layers": 3},
    "both directions": {"bidirectional": True},
    "two layers, both directions, batch first": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "projected": {"proj_size": 2, "num_layers": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_add_up_to_the_models_own_output_at_every_step(kind: str) -> None:
    model = tagger(**KINDS[kind])
    x = tokens().T if KINDS[kind].get("batch_first") else tokens()
    found = gs.contextual_decomposition(model, x, phrase=[(0, 2), (3, 4)])
    own = model.eval()(x).detach().numpy()
    own = own if KINDS[kind].get("batch_first") else own.swapaxes(0, 1)
    whole = found["output_relevant"] + found["output_irrelevant"] + found["output_bias"]
    for phrase in range(2):
        np.testing.assert_allclose(whole.isel(phrase=phrase).values, own, rtol=0, atol=1e-10)
    assert found.attrs["parity"] < 1e-10
    assert found.attrs["readout"] == "head"
    assert (np.abs(found["output_relevant"]).max(["sequence", "time", "output"]) > 1e-4).all()


def test_packed_rows_are_split_to_their_ends_and_padding_is_nan() -> None:
    model = tagger(kind=Classifier, num_layers=2, bidirectional=True)
    lengths = torch.tensor([4, 7, 2])
    found = gs.contextual_decomposition(model, (tokens(), lengths), phrase=slice(1, 3))
    assert found.attrs["readout"] == "head"
    assert found["length"].values.tolist() == [4, 7, 2]
    there = np.isfinite(found["output_relevant"]).isel(phrase=0, output=0).values
    np.testing.assert_array_equal(there, np.arange(7) < lengths[:, None].numpy())
    last = gs.contextual_decomposition(model, (tokens(), lengths), phrase=slice(1, 3), at="last")
    whole = (last["output_relevant"] + last["output_irrelevant"] + last["output_bias"]).values[0]
    np.testing.assert_allclose(whole, model.eval()(tokens(), lengths).detach().numpy(), rtol=0, atol=1e-10)
    for row, length in enumerate(lengths.tolist()):  # each row alone, without padding
        alone = gs.contextual_decomposition(
            model, (tokens()[:length, row : row + 1], torch.tensor([length])), phrase=[(1, min(3, length))]
        )
        np.testing.assert_allclose(
            found["hidden_relevant"].values[0, :, row, :length], alone["hidden_relevant"].values[0, :, 0], atol=1e-14
        )


def test_lengths_of_a_padded_batch_leave_out_its_padding() -> None:
    found = gs.contextual_decomposition(tagger(), tokens(), phrase=slice(0, 2), lengths=[7, 3, 5])
    assert int(np.isfinite(found["output_relevant"]).isel(output=0).sum()) == 15


def test_every_step_as_a_phrase_is_each_phrase_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tagger(num_layers=2, bidirectional=True)
    every = gs.contextual_decomposition(model, tokens())
    assert every["start"].values.tolist() == list(range(7))
    for step in (0, 3, 6):
        one = gs.contextual_decomposition(model, tokens(), phrase=slice(step, step + 1))
        np.testing.assert_allclose(every["output_relevant"][step], one["output_relevant"][0], rtol=0, atol=1e-15)
    monkeypatch.setattr(decomposition, "VALUES", 1)  # one phrase at a time
    np.testing.assert_allclose(
        gs.contextual_decomposition(model, tokens())["output_relevant"], every["output_relevant"]
    )


def test_a_phrase_contributes_nothing_before_it_begins() -> None:
    found = gs.contextual_decomposition(tagger(num_layers=2), tokens())
    for phrase in range(7):
        assert (found["hidden_relevant"].isel(phrase=phrase, time=slice(0, phrase)) == 0).all()
        assert (np.abs(found["hidden_relevant"].isel(phrase=phrase, time=phrase)) > 0).all()


def test_the_phrase_of_all_steps_leaves_nothing_and_an_initial_state_is_no_part_of_it() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(2, 3, num_layers=2).double()
    x = torch.randn(4, 1, 2, dtype=torch.float64)
    found = gs.contextual_decomposition(lstm, x, phrase=slice(None))
    assert float(np.abs(found["hidden_irrelevant"]).max()) < 1e-16
    given = torch.randn(2, 2, 1, 3, dtype=torch.float64)
    found = gs.contextual_decomposition(lstm, (x, (given[0], given[1])), phrase=slice(None))
    assert float(np.abs(found["hidden_irrelevant"]).max()) > 0.01
    own = lstm(x, (given[0], given[1]))[0].detach().numpy()[:, 0]
    whole = (found["hidden_relevant"] + found["hidden_irrelevant"]).values[0, 0, 0]
    np.testing.assert_allclose(whole, own, rtol=0, atol=1e-12)


def test_an_interaction_is_the_phrases_and_none_of_its_steps() -> None:
    # A unit that writes 1 only if the step before was A and this one is B: A opens the input gate by way of h of a
    # second unit; B alone meets a shut gate, A alone an empty candidate.
    lstm = nn.LSTM(2, 2).double()
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.zero_()
        i, f, g, o = (slice(2 * gate, 2 * gate + 2) for gate in range(4))
        lstm.bias_hh_l0[i], lstm.bias_hh_l0[f] = torch.tensor([-8.0, 8.0]), torch.tensor([8.0, -8.0])
        lstm.bias_hh_l0[o] = 8.0
        lstm.weight_ih_l0[g] = torch.tensor([[0.0, 8.0], [8.0, 0.0]])  # B into unit 0, A into unit 1
        lstm.weight_hh_l0[0, 1] = 20.0  # unit 1 shows A for one step, and opens the gate of unit 0
    x = torch.zeros(6, 1, 2, dtype=torch.float64)
    x[1, 0, 0] = x[2, 0, 1] = 1.0
    found = gs.contextual_decomposition(lstm, x, phrase=[(1, 3), (1, 2), (2, 3), (3, 6)], at="last")
    together, a, b, other = found["hidden_relevant"].values[:, 0, 0, 0]
    assert together == pytest.approx(0.76, abs=0.01)
    assert abs(a) < 1e-3
    assert abs(b) < 0.01
    assert abs(other) < 1e-3


def test_effects_that_are_small_enough_are_those_of_taking_the_phrase_away() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, bias=False).double()
    x = 1e-4 * torch.randn(5, 1, 3, dtype=torch.float64)
    found = gs.contextual_decomposition(lstm, x, at="last")
    for step in range(5):
        without = x.clone()
        without[step] = 0
        effect = (lstm(x)[0][-1, 0] - lstm(without)[0][-1, 0]).detach().numpy()
        np.testing.assert_allclose(found["hidden_relevant"].values[step, 0, 0], effect, rtol=2e-3, atol=1e-12)


def test_a_readout_can_be_named_or_given_and_is_found_only_if_there_is_one() -> None:
    model = tagger()
    named = gs.contextual_decomposition(model, tokens(), readout="head")
    given = gs.contextual_decomposition(model, tokens(), readout=model.head)
    apart = gs.contextual_decomposition(model, tokens(), readout=nn.Linear(6, 1, bias=False).double())
    np.testing.assert_array_equal(named["output_relevant"], given["output_relevant"])
    assert (given.attrs["readout"], apart.attrs["readout"]) == ("head", "given")
    assert apart["output_bias"].values.tolist() == [0.0]
    model.drop = nn.Tanh()  # the head now reads something else than the states
    assert "output_relevant" not in gs.contextual_decomposition(model, tokens())
    with pytest.raises(ValueError, match="'head' read something else, so that the parts would not add up"):
        gs.contextual_decomposition(model, tokens(), readout="head")
    lower = gs.contextual_decomposition(tagger(num_layers=2), tokens(), layer=0)
    assert "output_relevant" not in lower
    assert lower.attrs["parity"] < 1e-12


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_stays_as_it_was_also_after_an_error(fails: bool) -> None:
    model = tagger(num_layers=2, dropout=0.5).train()
    model.head.eval()
    modes = [part.training for part in model.modules()]
    random = torch.get_rng_state()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    if fails:
        with pytest.raises(IndexError):
            gs.contextual_decomposition(model, tokens() + 9)
    else:
        gs.contextual_decomposition(model, tokens())
    assert [part.training for part in model.modules()] == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())


def test_float32_models_and_open_stacks_are_split_too(tmp_path: Any) -> None:
    model = tagger().float()
    found = gs.contextual_decomposition(model, tokens(), at=-1)
    assert 0 < found.attrs["parity"] < 1e-6
    open_twin = gs.contextual_decomposition(gs.from_torch(model.rnn), model.embedding(tokens()).detach(), at=6)
    np.testing.assert_array_equal(found["hidden_relevant"], open_twin["hidden_relevant"])
    found.to_netcdf(tmp_path / "parts.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "parts.nc", engine="h5netcdf") as back:
        xr.testing.assert_equal(found, back.load())


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_half_precision_is_split_within_its_own_rounding(dtype: torch.dtype, most: float) -> None:
    torch.manual_seed(0)
    found = gs.contextual_decomposition(nn.LSTM(2, 3).to(dtype), torch.randn(5, 1, 2).to(dtype))
    assert 1e-5 < found.attrs["parity"] < most == found.attrs["tolerance"]


def test_computed_weights_and_unbatched_input_are_split_too() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(2, 3).double()
    nn.utils.parametrizations.weight_norm(lstm, "weight_hh_l0")
    with torch.no_grad():
        lstm.parametrizations["weight_hh_l0"].original0.mul_(1.7)
    found = gs.contextual_decomposition(lstm, torch.randn(5, 2, dtype=torch.float64))
    assert found.attrs["parity"] < 1e-12
    assert found.sizes["sequence"] == 1


def test_a_module_that_is_no_lstm_after_all_is_found_out() -> None:
    class Doubled(nn.LSTM):
        def forward(self, x: Tensor, state: Any = None) -> Any:
            output, state = super().forward(x, state)
            return 2 * output, state

    with pytest.raises(gs.ParityError, match="the parts must add up to the states of 'model'"):
        gs.contextual_decomposition(Doubled(2, 3), torch.randn(5, 1, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"phrase": slice(3, 3)}, "phrase must be at least one step long"),
        ({"phrase": slice(0, 6, 2)}, "phrase must be a slice of steps that follow each other"),
        ({"phrase": [(5, 8)]}, "lie within the 7 steps of the input; from 5 to 8 came"),
        ({"phrase": []}, "phrase must be a slice, a list"),
        ({"phrase": [(1, 2, 3)]}, "whole numbers"),
        ({"phrase": "all"}, "phrase must be a slice, a list"),
        ({"readout": "rnn"}, "readout must be the path of an nn.Linear of the model; 'rnn' came. Choose from: head"),
        ({"readout": "other"}, "readout must read the 6 values that the LSTM shows; 'other' reads 3"),
        ({"readout": 3}, "readout must be an nn.Linear or its path; int came"),
        ({"layer": 1}, "layer must be a whole number from 0 to 0"),
        ({"at": 7}, "at must be None, 'last' or a step from 0 to 6; 7 came"),
        ({"lengths": [8, 1, 1]}, "lengths must be 3 whole numbers from 1 to 7"),
        ({"biases": "both"}, "biases must be 'phrase' or 'rest'; 'both' came"),
        ({"module": "head"}, "head"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        gs.contextual_decomposition(tagger(), tokens(), **given)


def test_a_result_that_would_be_too_large_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "LARGEST", 10_000)
    with pytest.raises(ValueError, match=r"7 phrases at 7 steps of 3 sequences would take 1\.41e-05\. Name a step"):
        gs.contextual_decomposition(tagger(), tokens())
    gs.contextual_decomposition(tagger(), tokens(), at="last")


def test_modules_that_are_no_lstm_called_once_on_sequences_are_refused() -> None:
    with pytest.raises(TypeError, match="is defined for LSTM layers that read whole sequences"):
        gs.contextual_decomposition(nn.GRU(2, 3), torch.zeros(4, 1, 2))
    with pytest.raises(TypeError, match="'model' is of class LSTMCell"):
        gs.contextual_decomposition(nn.LSTMCell(2, 3), torch.zeros(4, 2))

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(self.rnn(x)[0])[0]

    with pytest.raises(ValueError, match="must call 'rnn' once; it was called 2 times"):
        gs.contextual_decomposition(Twice(), torch.zeros(4, 1, 2))
