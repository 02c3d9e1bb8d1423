"""Training and testing of torch models: against a loop written out, and against a model that knows the answers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import gatescope as gs
from gatescope.tasks import CERG, ERG, History, Reber, Sample, SequenceModel, first_errors
from gatescope.tasks.automaton import CONTINUAL, EMBEDDED, Automaton


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks of 16 units have nothing for a second thread to do, and waiting for it is slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(seed: int = 0, kind: type[nn.RNNBase] = nn.LSTM, **options: Any) -> SequenceModel:
    torch.manual_seed(seed)
    return SequenceModel(kind(7, 5, batch_first=True, **options), 7)


def weights(model: nn.Module) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Oracle(nn.Module):
    """Follows the automaton and says what can come next; errs at the steps of its life given in `errs`, in one row."""

    def __init__(self, automaton: Automaton, errs: tuple[int, ...] = (), row: int = 0) -> None:
        super().__init__()
        after = np.zeros((automaton.states, 7), np.int64)
        for state in range(automaton.states):
            for branch in range(automaton.branches[state]):
                after[state, automaton.symbols[state, branch]] = automaton.targets[state, branch]
        self.after = torch.from_numpy(after)
        self.allowed = torch.tensor(automaton.allowed.tolist()).float()
        self.scale = nn.Parameter(torch.tensor(20.0))
        self.errs, self.row = errs, row

    def forward(self, inputs: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        stands = torch.zeros(len(inputs), dtype=torch.int64) if state is None else state[:, 0]
        steps = 0 if state is None else int(state[0, 1])
        said = []
        for time in range(inputs.shape[1]):
            stands = self.after[stands, inputs[:, time].argmax(-1)]
            answer = self.allowed[stands] - 0.5
            if steps + time in self.errs:
                answer[self.row] *= -1
            said.append(answer)
        state = torch.stack([stands, torch.full_like(stands, steps + inputs.shape[1])], dim=1)
        return self.scale * torch.stack(said, dim=1), state


class Watched:
    """A task that notes which streams were asked for."""

    endless = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, int]] = []

    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        self.asked.append((kind, first, streams, steps))
        return CERG().batches(kind, first=first, streams=streams, steps=steps)


def by_hand(model: SequenceModel, chunks: list[Sample], clip: float | None = None) -> list[float]:
    """Adam on truncated backpropagation, written out; gives the gradients' norms."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state, norms = None, []
    for chunk in chunks:
        hidden, state = model.recurrent(torch.from_numpy(chunk.inputs), state)
        chances = model.readout(hidden).sigmoid()
        targets = torch.from_numpy(chunk.targets)
        loss = -(targets * chances.log() + (1 - targets) * (1 - chances).log()).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.cat([weight.grad.flatten() for weight in model.parameters()]).norm()
        norms.append(norm.item())
        if clip is not None and norm > clip:
            for weight in model.parameters():
                weight.grad *= clip / norm
        optimizer.step()
        state = tuple(part.detach() for part in state)
    return norms


@pytest.mark.parametrize("clip", [None, 0.1])
def test_training_is_adam_on_chunks_whose_state_is_carried_on_and_detached(clip: float | None) -> None:
    model, twin = small(1), small(1)
    history = gs.train(model, CERG(seed=3), streams=4, steps=6, restart=0, max_symbols=4 * 6 * 20, clip=clip)
    chunks = [*islice(CERG(seed=3, kind="training", streams=4).chunks(6), 20)]
    norms = by_hand(twin, chunks, clip)
    for trained, expected in zip(weights(model), weights(twin), strict=True):
        torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(history.updates["gradient_norm"], norms, rtol=1e-3)
    expected_clips = [clip is not None and norm > clip for norm in norms]
    assert history.updates["clipped"].values.tolist() == expected_clips
    assert history.clipped_share == np.mean(expected_clips)
    assert clip is None or 0 < history.clipped_share < 1
    assert history.restarts == 1


def test_a_restart_takes_fresh_streams_and_state_zero() -> None:
    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = small(), []

        def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
            self.seen.append((inputs.argmax(-1).tolist(), state is None))
            return self.model(inputs, state)

    model = Noting()
    history = gs.train(model, CERG(seed=2), streams=3, steps=4, restart=0.5, max_symbols=12 * 40, seed=7)
    zero = [fresh for _, fresh in model.seen]
    assert history.updates["restart"].values.tolist() == zero
    assert zero[0]
    assert 10 < sum(zero) < 30
    begun, position = 0, 0
    for symbols, fresh in model.seen:
        begun, position = (begun + 1, 0) if fresh else (begun, position + 4)
        streams = CERG(seed=2, kind="training", stream=3 * (begun - 1), streams=3).sample(position + 4)
        assert symbols == streams.inputs[:, position:].argmax(-1).tolist()


def test_training_is_repeated_bit_for_bit_and_its_seed_counts() -> None:
    def trained(seed: int) -> tuple[list[Tensor], History]:
        model = small(num_layers=2, dropout=0.5)
        torch.rand(next(disturbed))  # the global generator stands elsewhere each time
        return weights(model), gs.train(model, CERG(), max_symbols=20_000, seed=seed, restart=0.3), weights(model)

    disturbed = iter((1, 2, 3))
    first, again, other = trained(1), trained(1), trained(2)
    assert same(first[2], again[2])
    xr.testing.assert_identical(first[1].updates, again[1].updates)
    assert not same(first[2], other[2])
    assert not same(first[0], first[2])


def test_the_global_generators_and_modes_are_left_as_they_were() -> None:
    model = small(num_layers=2, dropout=0.5)
    model.eval()
    model.readout.train()
    torch.manual_seed(5)
    np.random.seed(5)
    expected, expected_numpy = torch.rand(3), np.random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    gs.train(model, CERG(), max_symbols=3000)
    first_errors(model, CERG(), streams=2, steps=50)
    assert torch.equal(torch.rand(3), expected)
    assert np.random.random() == expected_numpy
    assert [module.training for module in (model, model.recurrent, model.readout)] == [False, False, True]
    assert all(weight.grad is None for weight in model.parameters())


def test_it_trains_where_gradients_are_switched_off_and_leaves_them_off() -> None:
    model = small()
    before = weights(model)
    with torch.no_grad():
        gs.train(model, CERG(), max_symbols=2000)
        assert not torch.is_grad_enabled()
    assert not same(before, weights(model))


def test_frozen_weights_stay() -> None:
    model = small()
    model.recurrent.requires_grad_(False)
    before = weights(model.recurrent)
    gs.train(model, CERG(), max_symbols=2000)
    assert same(before, weights(model.recurrent))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_every_recurrent_module_learns_strings(kind: type[nn.RNNBase]) -> None:
    model = small(1, kind)
    history = gs.train(model, Reber(), max_symbols=300_000, calm=5, learning_rate=0.02)
    assert history.solved, history
    assert history.updates["restart"].all()  # every string begins in state zero
    assert history.updates["loss"].values[-1] < history.updates["loss"].values[0] / 3
    fresh = Reber(kind="retest").sample(50)
    right = first_errors(model, Reber(), streams=50)
    assert (right == fresh.lengths - 1).mean() > 0.9


def test_memory_blocks_are_trained_by_their_probabilities() -> None:
    torch.manual_seed(0)
    model = gs.BlockNetwork(7, 7, blocks=2, size=2)
    history = gs.train(model, Reber(), max_symbols=20_000, outputs="probabilities")
    losses = history.updates["loss"].values
    assert losses[-5:].mean() < losses[:5].mean() * 0.7
    first_errors(model, Reber(), outputs="probabilities")


def test_models_of_another_precision_are_trained_in_it() -> None:
    model = small().double()
    gs.train(model, CERG(), max_symbols=2000)
    assert {weight.dtype for weight in model.parameters()} == {torch.float64}


def test_a_model_that_knows_the_answers_passes_at_the_first_test() -> None:
    model = Oracle(CONTINUAL)
    task = Watched()
    history = gs.train(model, task, streams=4, steps=8, calm=3, tests=2, test_steps=1500, learning_rate=1e-9)
    assert (history.solved, history.solved_at, history.symbols) == (True, 96, 96)
    assert history.updates["wrong"].values.tolist() == [0, 0, 0]
    assert history.tests["right"].values.tolist() == [1500]
    assert task.asked[0] == ("training", 0, 4, 8)
    assert task.asked[-1] == ("testing", 0, 2, 1000)
    assert repr(history).startswith("History(solved after 96 symbols, 3 updates, ")


def test_every_test_reads_streams_that_no_other_read() -> None:
    task = Watched()
    model = Oracle(CONTINUAL, errs=(500,))
    history = gs.train(
        model, task, max_symbols=320, streams=4, steps=8, calm=2, tests=3, test_steps=700, learning_rate=1e-9, restart=0
    )
    assert not history.solved
    assert history.solved_at is None
    assert history.tests["right"].values.tolist() == [500] * 5
    assert history.tests["symbols"].values.tolist() == [64, 128, 192, 256, 320]
    assert [(kind, first) for kind, first, *_ in task.asked] == [("training", 0)] + [
        ("testing", 3 * i) for i in range(5)
    ]
    assert "not solved after 320 symbols" in repr(history)


def test_the_loss_is_the_mean_over_the_predictions_that_count() -> None:
    model = small()
    sample = ERG(kind="training").sample(16)
    chances = model(torch.from_numpy(sample.inputs))[0].sigmoid().detach().numpy().astype(float)
    entropy = -(sample.targets * np.log(chances) + (1 - sample.targets) * np.log(1 - chances))
    history = gs.train(model, ERG(), streams=16, max_symbols=1)
    assert history.updates["loss"].values.tolist() == [pytest.approx(entropy[sample.mask].mean(), rel=1e-5)]
    assert history.updates["wrong"].values.tolist() == [
        (np.abs(sample.targets - chances) >= 0.49).any(-1)[sample.mask].sum()
    ]
    assert history.symbols == sample.lengths.sum()


def test_without_tests_it_trains_to_the_end() -> None:
    history = gs.train(Oracle(CONTINUAL), CERG(), streams=2, steps=5, calm=1, tests=0, max_symbols=95)
    assert history.tests.sizes["test"] == 0
    assert history.symbols == 100


@pytest.mark.parametrize("error", [0, 1, 999, 1000, 1001, 2499])
def test_the_first_error_is_found_where_it_is(error: int) -> None:
    right = first_errors(Oracle(CONTINUAL, errs=(error, 2499), row=1), CERG(), streams=3, steps=2500)
    assert right.tolist() == [2500, error, 2500]


def test_an_error_beyond_the_last_step_does_not_count() -> None:
    assert first_errors(Oracle(CONTINUAL, errs=(1500,)), CERG(), streams=2, steps=1500).tolist() == [1500, 1500]


def test_of_strings_every_prediction_counts_but_none_after_the_end() -> None:
    lengths = ERG(kind="retest").sample(20).lengths
    assert first_errors(Oracle(EMBEDDED), ERG(), streams=20).tolist() == (lengths - 1).tolist()
    right = first_errors(Oracle(EMBEDDED, errs=(3,), row=7), ERG(), streams=20)
    assert right[7] == 3
    last = int(lengths[7]) - 1  # what is said at E, and in padding, does not count
    assert first_errors(Oracle(EMBEDDED, errs=(last, last + 1), row=7), ERG(), streams=20)[7] == last


def test_one_half_everywhere_is_wrong_and_so_is_nan() -> None:
    class Same(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.tensor(value))

        def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
            return self.value.expand(inputs.shape), inputs

    for value in (0.5, float("nan")):
        assert first_errors(Same(value), CERG(), streams=2, steps=10, outputs="probabilities").tolist() == [0, 0]


def test_ctrl_c_ends_training_with_the_history_so_far() -> None:
    model = small()
    before = weights(model)
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt

    model.eval()
    handle = model.register_forward_pre_hook(interrupt)
    history = gs.train(model, CERG(), streams=2, steps=5)
    handle.remove()
    assert history.interrupted
    assert history.updates.sizes["update"] == 5
    assert history.symbols == 50
    assert not model.training
    assert not same(before, weights(model))
    assert "interrupted" in repr(history)


def test_a_history_goes_through_netcdf(tmp_path: Path) -> None:
    history = gs.train(small(), CERG(), max_symbols=5000, clip=0.5)
    assert history.updates.attrs["clip"] == 0.5
    assert history.updates.attrs["seed"] == 0
    history.updates.to_netcdf(tmp_path / "updates.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "updates.nc", engine="h5netcdf") as again:
        xr.testing.assert_equal(again.load(), history.updates)
    assert (np.diff(history.updates["symbols"]) == 1024).all()


def test_a_trained_model_is_recorded_like_any_other() -> None:
    model = small()
    gs.train(model, CERG(), max_symbols=3000)
    sample = CERG(streams=2).sample(40)
    recording = gs.record(model, torch.from_numpy(sample.inputs), labels=sample.labels)
    assert recording.sizes["unit"] == 5
    assert recording["boundary"].values.sum() == sample.labels["boundary"].sum()


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_sequence_model_is_the_module_and_a_readout(batch_first: bool) -> None:
    module = nn.LSTM(7, 6, proj_size=4, batch_first=batch_first)
    model = SequenceModel(module, 3)
    inputs = torch.rand(2, 5, 7)
    outputs, state = model(inputs)
    hidden, expected = module(inputs if batch_first else inputs.transpose(0, 1))
    torch.testing.assert_close(outputs, model.readout(hidden if batch_first else hidden.transpose(0, 1)))
    assert same([*state], [*expected])
    joined = torch.cat([model(inputs[:, :2])[0], model(inputs[:, 2:], model(inputs[:, :2])[1])[0]], dim=1)
    torch.testing.assert_close(joined, outputs)


def test_a_sequence_model_takes_cells_of_our_own() -> None:
    model = SequenceModel(gs.Recurrent([[gs.PeepholeLSTMCell(7, 5)]], batch_first=True), 7)
    history = gs.train(model, CERG(), max_symbols=2000)
    assert history.updates.sizes["update"] == 2


class Stateless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 7)

    def forward(self, inputs: Tensor, state: Any) -> Tensor:
        return self.linear(inputs)


class Careless(Stateless):
    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, None]:  # type: ignore[override]
        return self.linear(inputs), None


class Detached(Stateless):
    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.linear(inputs).detach(), inputs


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return small()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SequenceModel(nn.Linear(7, 7), 7), TypeError, "needs nn.LSTM, nn.GRU.*; Linear came"),
        (lambda: small(bidirectional=True), ValueError, "read in one direction; a bidirectional LSTM came"),
        (lambda: gs.train(nn.LSTM(7, 16, batch_first=True), CERG()), ValueError, r"\(32, 32, 16\) came.*SequenceModel"),
        (
            lambda: gs.train(Stateless(), CERG()),
            TypeError,
            r"must return \(outputs, state\).*Tensor came from Stateless",
        ),
        (lambda: gs.train(Careless(), CERG()), TypeError, "must be a tensor or a tuple of tensors; NoneType came"),
        (lambda: gs.train(small().requires_grad_(False), CERG()), ValueError, "weights that require gradients"),
        (lambda: gs.train(small(), CERG(), restart=1.5), ValueError, "restart must be a chance .*; 1.5 came"),
        (lambda: gs.train(small(), CERG(), streams=0), ValueError, "streams must be a whole number from 1 on; 0 came"),
        (lambda: gs.train(small(), CERG(), seed=-1), ValueError, "seed must be a whole number from 0 on; -1 came"),
        (lambda: gs.train(small(), CERG(), restart=None), ValueError, "restart must be a chance .*; None came"),
        (lambda: gs.train(small(), CERG(), seed=2**63), ValueError, r"seed must be below 2\^63"),
        (lambda: gs.train(small(), CERG(), clip=0), ValueError, "learning_rate and clip must be finite numbers above"),
        (lambda: gs.train(small(), CERG(), learning_rate=0), ValueError, "learning_rate and clip must be finite"),
        (lambda: gs.train(small(), CERG(), learning_rate="a"), ValueError, "learning_rate .* must be .*; 'a' and None"),
        (lambda: gs.train(small(), CERG(), learning_rate=float("inf")), ValueError, "must be finite .*; inf and None"),
        (lambda: gs.train(None, CERG()), TypeError, "model must be a torch.nn.Module; NoneType came"),
        (lambda: gs.train(small(), CERG), TypeError, "task must be an object .*; the class CERG came"),
        (lambda: gs.train(small(), "CERG"), TypeError, "task must be an object .*; str came"),
        (lambda: gs.train(nn.LSTM(7, 7), CERG()), ValueError, "this LSTM reads time first"),
        (lambda: gs.train(small(), CERG(), outputs="probabilities"), ValueError, "must lie between 0 and 1; -.* came"),
        (lambda: gs.train(Detached(), CERG()), ValueError, "must depend on its weights in a way that autograd sees"),
        (lambda: gs.train(made_in_inference_mode(), CERG()), ValueError, r"made under torch\.inference_mode"),
        (lambda: first_errors(nn.Identity(), CERG()), ValueError, "must have weights; Identity has none"),
        (lambda: first_errors(small(), CERG(), outputs="x"), ValueError, "outputs must be 'logits' or"),
        (lambda: SequenceModel(nn.LSTM(7, 5), 0), ValueError, "outputs must be a whole number from 1 on; 0 came"),
        (lambda: gs.train(small(), CERG(), outputs="logit"), ValueError, "outputs must be 'logits' or"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_loss_that_is_no_longer_finite_ends_training_before_the_weights_are_touched() -> None:
    model = small()
    with torch.no_grad():
        model.readout.weight.fill_(float("inf"))
    before = weights(model)
    model.eval()
    with pytest.raises(ValueError, match=r"must stay finite; loss .* came at update 0\. Lower learning_rate"):
        gs.train(model, CERG())
    assert same(before, weights(model))
    assert not model.training


def test_probabilities_that_are_not_finite_end_training_in_a_sentence() -> None:
    model = gs.BlockNetwork(7, 7, blocks=2, size=2)
    with torch.no_grad():
        model.readout.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match=r"must stay finite; loss nan .* came at update 0"):
        gs.train(model, CERG(), outputs="probabilities")


def test_a_state_that_cannot_be_carried_on_is_refused_before_the_weights_are_touched() -> None:
    model = Careless()
    before = weights(model)
    with pytest.raises(TypeError, match="NoneType came"):
        gs.train(model, CERG())
    assert same(before, weights(model))


def test_it_trains_in_inference_mode_and_leaves_it_on() -> None:
    one, other = small(), small()
    with torch.inference_mode():
        gs.train(one, CERG(), max_symbols=2000)
        assert torch.is_inference_mode_enabled()
    gs.train(other, CERG(), max_symbols=2000)
    assert same(weights(one), weights(other))


def test_the_numbers_that_key_a_task_count_in_training() -> None:
    def trained(task: CERG) -> list[Tensor]:
        model = small()
        gs.train(model, task, max_symbols=3000)
        return weights(model)

    base = trained(CERG())
    assert same(base, trained(replace(CERG(), kind="retest", streams=9)))  # these two are the trainer's
    assert not any(same(base, trained(CERG(**{name: 1}))) for name in ("seed", "network", "stream", "test"))


@pytest.mark.slow
def test_16_lstm_units_solve_the_continual_grammar_from_most_seeds() -> None:
    solved = 0
    for seed in range(4):
        torch.manual_seed(seed)
        model = SequenceModel(nn.LSTM(7, 16, batch_first=True), 7)
        history = gs.train(model, CERG(seed=seed), seed=seed)
        solved += history.solved
        if history.solved:
            assert np.median(first_errors(model, CERG(seed=seed))) > 50_000
    assert solved >= 3


def test_a_module_that_reads_time_first_is_trained_inside_a_sequence_model() -> None:
    history = gs.train(SequenceModel(nn.LSTM(7, 4), outputs=7), CERG(), max_symbols=2048)
    assert history.updates["symbols"].values[-1] >= 2048
