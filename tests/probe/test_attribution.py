"""What a target hangs on, against closed forms, brute force, autograd and Captum called by hand."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import gatescope as gs

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
LENGTHS = torch.tensor([6, 4, 5])
METHODS = (
    "saliency",
    "input_x_gradient",
    "integrated_gradients",
    "gradient_shap",
    "feature_ablation",
    "occlusion",
    "shapley_value_sampling",
)


class Classifier(nn.Module):
    """Reads a batch of sequences and scores four classes at the last step."""

    def __init__(self, kind=nn.LSTM, **form):
        super().__init__()
        self.rnn = kind(3, 5, batch_first=True, **form)
        self.out = nn.Linear(5 * (1 + self.rnn.bidirectional), 4)

    def forward(self, x):
        return self.out(self.rnn(x)[0].mean(1))


class Packing(Classifier):
    """The same with padded sequences, which it packs itself, sorted as torch has it by default."""

    def forward(self, x, lengths):
        shown, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True))
        return self.out(pad_packed_sequence(shown, batch_first=True)[0].sum(1))


class Words(nn.Module):
    """Reads whole numbers, time first."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.rnn = nn.GRU(3, 5)
        self.out = nn.Linear(5, 4)

    def forward(self, tokens):
        return self.out(self.rnn(self.embedding(tokens))[1][-1])


class Loop(nn.Module):
    """A loop of cells."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state[0]


def made(make, *arguments, **form):
    torch.manual_seed(1)
    model = make(*arguments, **form).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    return model


def batch(sequences=3, steps=6, features=3):
    return torch.randn(sequences, steps, features, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def linear(keep=0.5, steps=4):
    """A network whose last state is the sum of its inputs, each halved as often as it is steps away."""
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True).double()
    for weight, value in zip(rnn.parameters(), (1.0, keep), strict=True):
        nn.init.constant_(weight, value)
    return rnn, torch.arange(1.0, steps + 1).reshape(1, steps, 1).double()


@pytest.mark.parametrize("method", METHODS[1:])
def test_of_a_linear_network_every_method_says_weight_times_value(method):
    rnn, x = linear()
    found = gs.attribution(rnn, x, target=(-1, 0), method=method, n_samples=3)
    np.testing.assert_allclose(found.by_step[0], [1 / 8, 2 / 4, 3 / 2, 4], atol=1e-6)


def test_of_a_linear_network_saliency_is_the_weight_with_its_sign():
    rnn, x = linear()
    found = gs.attribution(rnn, x, target=lambda output: -output[0][:, -1, 0], method="saliency")
    np.testing.assert_allclose(found.attribution[0, :, 0], [-1 / 8, -1 / 4, -1 / 2, -1], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [{}, {"num_layers": 3, "bidirectional": True}], ids=["one layer", "three, both ways"])
def test_integrated_gradients_are_captums_and_complete(kind, form):
    model, x = made(Classifier, KINDS[kind], **form), batch()
    found = gs.attribution(model, x, target=[1, 3, 0], baseline=0.2, n_steps=30)
    theirs = IntegratedGradients(model).attribute(x, torch.full_like(x, 0.2), torch.tensor([1, 3, 0]), n_steps=30)
    np.testing.assert_allclose(found.attribution, theirs.detach(), atol=1e-9)
    total = found.attribution.sum(["time", "feature"])
    np.testing.assert_allclose(total, found.output - found.baseline_output, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.completeness_delta, total - (found.output - found.baseline_output), atol=1e-12)
    with torch.no_grad():
        np.testing.assert_allclose(found.output, model(x)[range(3), [1, 3, 0]], atol=1e-12)
    assert not found.incomplete.any()
    assert found.attrs["warning"] == ""


@pytest.mark.parametrize("kind", KINDS)
def test_saliency_is_autograds_gradient(kind):
    model, x = made(Classifier, KINDS[kind], num_layers=2, bidirectional=True), batch()
    given = x.clone().requires_grad_()
    (true,) = torch.autograd.grad(model(given)[:, 2].sum(), given)
    found = gs.attribution(model, x, target=2, method="saliency")
    np.testing.assert_allclose(found.attribution, true, atol=1e-12)
    times = gs.attribution(model, x, target=2, method="input_x_gradient")
    np.testing.assert_allclose(times.attribution, true * x, atol=1e-12)


def test_fused_and_opened_say_the_same():
    model, x = made(Classifier, nn.LSTM, num_layers=2), batch()
    fused = gs.attribution(model, x, target=1, n_steps=8)
    with gs.opened(model):
        opened = gs.attribution(model, x, target=1, n_steps=8)
    np.testing.assert_allclose(fused.attribution, opened.attribution, atol=1e-12)


def test_ablation_of_inputs_is_what_leaving_each_out_does():
    model, x = made(Classifier), batch()
    found = gs.attribution(model, x, target=1, method="feature_ablation", baseline=0.5)
    by_step = gs.attribution(model, x, target=1, method="feature_ablation", baseline=0.5, by="step")
    assert "attribution" not in by_step
    with torch.no_grad():
        for step in range(6):
            gone = x.clone()
            gone[:, step] = 0.5
            np.testing.assert_allclose(by_step.by_step[:, step], model(x)[:, 1] - model(gone)[:, 1], atol=1e-7)
            gone = x.clone()
            gone[:, step, 2] = 0.5
            lost = model(x)[:, 1] - model(gone)[:, 1]
            np.testing.assert_allclose(found.attribution[:, step, 2], lost, atol=1e-7)


def test_occlusion_by_one_step_is_ablation_by_steps_and_a_wider_window_is_the_mean_of_those_over_it():
    model, x = made(Classifier), batch()
    one = gs.attribution(model, x, target=1, method="occlusion").by_step
    np.testing.assert_allclose(one, gs.attribution(model, x, target=1, method="feature_ablation", by="step").by_step)
    two = gs.attribution(model, x, target=1, method="occlusion", window=2).by_step
    with torch.no_grad():
        gone = x.clone()
        gone[:, :2] = 0
        np.testing.assert_allclose(two[:, 0], model(x)[:, 1] - model(gone)[:, 1], atol=1e-7)


def test_shapley_values_of_two_steps_are_the_mean_over_both_orders():
    model, x = made(Classifier), batch(steps=2)
    found = gs.attribution(model, x, target=0, method="shapley_value_sampling", by="step", n_samples=400).by_step

    def value(first, second):
        kept = torch.stack([x[:, 0] * first, x[:, 1] * second], 1)
        with torch.no_grad():
            return model(kept)[:, 0]

    second = (value(0, 1) - value(0, 0) + value(1, 1) - value(1, 0)) / 2
    first = (value(1, 0) - value(0, 0) + value(1, 1) - value(0, 1)) / 2
    both = np.stack([first, second], 1)
    np.testing.assert_allclose(found, both, atol=0.1 * np.abs(both).max())
    np.testing.assert_allclose(found.sum("time"), both.sum(1), atol=1e-6)  # each order adds up


def test_gradient_shap_tends_to_integrated_gradients_averaged_over_its_baselines():
    model, x = made(Classifier), batch(1, 3)
    draws = batch(2, 3)
    found = gs.attribution(model, x, target=0, method="gradient_shap", baseline=draws, n_samples=2000)
    paths = [gs.attribution(model, x, target=0, baseline=draw).attribution.values for draw in draws]
    assert np.abs(found.attribution - np.mean(paths, 0)).max() < 0.05 * np.abs(paths).max()
    assert found.baseline.dims == ("draw", "time", "feature")


@pytest.mark.parametrize("method", METHODS)
def test_sequences_that_the_model_packs_are_answered_as_if_alone_and_padding_is_0(method):
    model, x = made(Packing), batch()
    order = torch.argsort(LENGTHS, descending=True)
    lengths = LENGTHS[order]
    found = gs.attribution(model, (x, lengths), target=1, method=method, n_samples=2, n_steps=5)
    assert found.length.values.tolist() == lengths.tolist()
    for row, length in enumerate(lengths.tolist()):
        assert (found.by_step[row, length:] == 0).all()
        alone = gs.attribution(
            model, (x[row : row + 1, :length], lengths[row : row + 1]), target=1, method=method, n_samples=2, n_steps=5
        )
        if method not in ("gradient_shap", "shapley_value_sampling"):  # which draw other numbers for it
            np.testing.assert_allclose(found.by_step[row, :length], alone.by_step[0], atol=1e-7)


@pytest.mark.parametrize("to", ["cell_state", "forget_gate"])
def test_signals_of_sequences_that_are_packed_are_answered_as_if_alone(to):
    model, x = made(Packing, num_layers=2), batch()
    lengths = torch.tensor([6, 5, 3])
    asked = {"target": 1, "to": to, "layer": 0, "n_steps": 5}
    found = gs.attribution(model, (x, lengths), **asked)
    for row, length in enumerate(lengths.tolist()):
        assert (found.attribution.values[row, length:] == 0).all()
        alone = gs.attribution(model, (x[row : row + 1, :length], lengths[row : row + 1]), **asked)
        np.testing.assert_allclose(found.attribution[row, :length], alone.attribution[0], atol=1e-12)
    if to == "cell_state":
        assert np.isnan(found.completeness_delta.values[2]).tolist() == [False] * 3 + [True] * 3


def test_a_packed_input_is_answered_as_the_same_padded_one():
    torch.manual_seed(3)
    rnn, x = made(nn.GRU, 3, 5, num_layers=2, batch_first=True), batch()
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    assert isinstance(packed, PackedSequence)
    found = gs.attribution(rnn, packed, target=(-1, 4), n_steps=10)
    assert (found.attribution.values[1, 4:] == 0).all()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = gs.attribution(rnn, x[row : row + 1, :length], target=(-1, 4), n_steps=10)
        np.testing.assert_allclose(found.attribution[row, :length], alone.attribution[0], atol=1e-12)


def test_padding_that_the_model_reads_is_held_and_gets_exactly_0():
    model, x = made(Classifier), batch()
    found = gs.attribution(model, x, target=1, lengths=LENGTHS, n_steps=10)
    assert (found.attribution.values[1, 4:] == 0).all()
    kept = x.clone()
    kept[1, :4] = 0
    with torch.no_grad():
        np.testing.assert_allclose(found.baseline_output[1], model(kept)[1, 1], atol=1e-12)
    ablated = gs.attribution(model, x, target=1, lengths=LENGTHS, method="feature_ablation")
    assert (ablated.attribution.values[1, 4:] == 0).all()


def test_whole_numbers_are_attributed_to_at_their_embedding():
    model, tokens = made(Words), torch.tensor([[1, 2], [3, 3], [6, 0]])
    found = gs.attribution(model, tokens, target=2, n_steps=20, labels={"token": [list("bdg"), list("cda")]})
    vectors = model.embedding(tokens).detach()

    def scores(vectors):
        return model.out(model.rnn(vectors.transpose(0, 1))[1][-1])

    theirs = IntegratedGradients(scores).attribute(vectors.transpose(0, 1), target=2, n_steps=20)
    np.testing.assert_allclose(found.attribution, theirs.detach(), atol=1e-12)
    assert found.token[1].values.tolist() == ["c", "d", "a"]
    padding = gs.attribution(model, tokens, target=2, baseline=torch.zeros(2, 3, dtype=torch.long))
    with torch.no_grad():
        np.testing.assert_allclose(
            padding.baseline_output, model(torch.zeros(3, 2, dtype=torch.long))[:, 2], atol=1e-12
        )
    gone = gs.attribution(model, tokens, target=2, method="feature_ablation")
    assert gone.attrs["by"] == "step"


def test_packed_whole_numbers_are_attributed_to_at_their_embedding():
    class Packed(Words):
        def forward(self, packed):
            return self.out(self.rnn(packed._replace(data=self.embedding(packed.data)))[1][-1])

    model, tokens = made(Packed), torch.tensor([[1, 3, 6], [2, 3, 0]])
    packed = pack_padded_sequence(tokens, torch.tensor([2, 3]), batch_first=True, enforce_sorted=False)
    found = gs.attribution(model, packed, target=2, n_steps=10)
    assert (found.attribution.values[0, 2:] == 0).all()
    plain = made(Words)
    alone = gs.attribution(plain, tokens[:1, :2].T, target=2, n_steps=10)
    np.testing.assert_allclose(found.attribution[0, :2], alone.attribution[0], atol=1e-12)


@pytest.mark.parametrize("state", ["hidden_state", "cell_state"])
def test_gradients_of_states_are_those_of_loss_gradient(state):
    model, x = made(Classifier, num_layers=2, bidirectional=True), batch()
    found = gs.attribution(model, x, target=1, method="saliency", to=state, layer=0, direction="backward")
    true = gs.loss_gradient(model, x, lambda output: output[:, 1].sum())
    there = true[f"{state}_gradient"].sel(layer=0, direction="backward")
    np.testing.assert_allclose(found.attribution, there, atol=1e-12)


def opened(model, x, change):
    """The target of an opened model whose signals are changed by hand."""

    def tap(name, value, *, layer, direction, time):
        return change(name, value, time)

    twin = gs.from_torch(model.rnn)
    with torch.no_grad():
        return model.out(twin(x, tap=tap)[0].mean(1))[:, 1]


def test_a_state_at_each_step_is_a_question_of_its_own():
    model, x = made(Classifier, nn.GRU), batch()
    found = gs.attribution(model, x, target=1, to="hidden_state", n_steps=40)
    assert found.completeness_delta.dims == ("sequence", "time")
    base = opened(model, x, lambda name, value, time: value)
    for step in range(6):

        def change(name, value, time, step=step):
            return torch.zeros_like(value) if (name, time) == ("hidden_state", step) else value

        np.testing.assert_allclose(found.baseline_output[:, step], opened(model, x, change), atol=1e-12)
        np.testing.assert_allclose(found.by_step[:, step], base - opened(model, x, change), atol=1e-5)
    few = gs.attribution(model, x, target=1, to="hidden_state", method="feature_ablation", unit=[4, 1], time=[2])
    for place, unit in enumerate((4, 1)):

        def change(name, value, time, unit=unit):
            if (name, time) != ("hidden_state", 2):
                return value
            return value.index_fill(1, torch.tensor([unit]), 0.0)

        np.testing.assert_allclose(few.attribution[:, 0, place], base - opened(model, x, change), atol=1e-7)
    assert few.unit.values.tolist() == [4, 1]
    assert few.time.values.tolist() == [2]


def test_a_gate_at_all_steps_together_adds_up_to_what_holding_it_at_the_baseline_does():
    model, x = made(Classifier), batch()
    found = gs.attribution(model, x, target=1, to="forget_gate", baseline=1.0)
    base = opened(model, x, lambda name, value, time: value)
    held = opened(model, x, lambda name, value, time: torch.ones_like(value) if name == "forget_gate" else value)
    np.testing.assert_allclose(found.by_step.sum("time"), base - held, atol=1e-6)
    assert found.completeness_delta.dims == ("sequence",)
    one = gs.attribution(model, x, target=1, to="forget_gate", baseline=1.0, together=False)
    assert one.completeness_delta.dims == ("sequence", "time")


def test_a_unit_inside_is_explained_by_the_input():
    model, x = made(Classifier), batch()
    site = gs.unit("cell_state", unit=3, time=-2)
    found = gs.attribution(model, x, target=site)
    recording = gs.record(model, x)
    np.testing.assert_allclose(found.output, recording.cell_state[0, 0, :, -2, 3], atol=1e-12)
    np.testing.assert_allclose(found.by_step.sum("time"), found.output - found.baseline_output, atol=1e-5)
    assert (found.by_step[:, -1] == 0).all()  # it has not been read yet


def test_a_unit_inside_is_counted_from_each_sequences_own_last_step():
    model, x = made(Packing), batch()
    lengths = torch.tensor([6, 5, 4])
    found = gs.attribution(model, (x, lengths), target=gs.unit("hidden_state", unit=0), method="saliency")
    for row, length in enumerate(lengths.tolist()):
        assert (found.attribution.values[row, :length] != 0).any(-1).all()
        assert (found.attribution.values[row, length:] == 0).all()


def test_a_loop_of_cells_is_answered_like_the_layer_with_its_weights():
    loop, x = made(Loop), batch()
    layer = nn.LSTM(3, 5, batch_first=True).double()
    for name, weight in loop.cell.named_parameters():
        getattr(layer, f"{name}_l0").data.copy_(weight.data)
    for to in ("input", "forget_gate", "hidden_state"):
        ours = gs.attribution(loop, x, target=2, to=to, n_steps=10)
        theirs = gs.attribution(layer, x, target=(-1, 2), to=to, n_steps=10)
        np.testing.assert_allclose(ours.attribution, theirs.attribution, atol=1e-12)


def test_the_initial_state_is_attributed_to_by_layer_direction_and_state():
    torch.manual_seed(4)
    rnn, x = made(nn.LSTM, 3, 5, num_layers=2, bidirectional=True, proj_size=2, batch_first=True), batch()
    start = (torch.randn(4, 3, 2).double(), torch.randn(4, 3, 5).double())
    found = gs.attribution(rnn, (x, start), target=(-1, 0), to="initial_state")
    assert dict(found.sizes) == {"sequence": 3, "layer": 2, "direction": 2, "state": 2, "unit": 5}
    np.testing.assert_allclose(found.value.sel(state="cell_state", layer=1, direction="backward"), start[1][3])
    assert np.isnan(found.attribution.sel(state="hidden_state", unit=3)).all()
    with torch.no_grad():
        change = (rnn(x, start)[0] - rnn(x)[0])[:, -1, 0]
    np.testing.assert_allclose(found.attribution.sum(["layer", "direction", "state", "unit"]), change, atol=1e-5)
    top = gs.attribution(rnn, (x, start), target=(-1, 0), to="initial_state", layer=1, method="saliency")
    given = tuple(entry.clone().requires_grad_() for entry in start)
    true = torch.autograd.grad(rnn(x, given)[0][:, -1, 0].sum(), given)
    np.testing.assert_allclose(top.attribution.sel(layer=1, state="cell_state", direction="forward"), true[1][2])


def test_from_where_a_state_starts_may_be_given_in_the_modules_own_form():
    rnn, x = made(nn.GRU, 3, 5, batch_first=True), batch()
    start = torch.ones(1, 3, 5).double()
    found = gs.attribution(rnn, x, target=(-1, 0), to="initial_state", baseline=start)
    with torch.no_grad():
        np.testing.assert_allclose(found.baseline_output, rnn(x, start)[0][:, -1, 0], atol=1e-12)
    np.testing.assert_allclose(found.baseline[:, 0, 0, 0], np.ones((3, 5)))


def test_states_that_are_replaced_together_do_not_follow_from_each_other():
    model, x = made(Classifier), batch()
    found = gs.attribution(model, x, target=1, to="cell_state", together=True)
    base = opened(model, x, lambda name, value, time: value)
    held = opened(model, x, lambda name, value, time: torch.zeros_like(value) if name == "cell_state" else value)
    np.testing.assert_allclose(found.by_step.sum("time"), base - held, atol=1e-6)


def test_steps_and_units_of_a_gate_that_are_not_chosen_follow():
    model, x = made(Classifier), batch()
    found = gs.attribution(model, x, target=1, to="input_gate", time=[1, 2], unit=3)

    def change(name, value, time):
        return value.index_fill(1, torch.tensor([3]), 0) if name == "input_gate" and time in (1, 2) else value

    base = opened(model, x, lambda name, value, time: value)
    np.testing.assert_allclose(found.by_step.sum("time"), base - opened(model, x, change), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_model_does_not_use_gets_nothing(method):
    model, x = made(Classifier), batch()
    with torch.no_grad():
        model.rnn.weight_ih_l0[:, 1] = 0
    found = gs.attribution(model, x, target=1, method=method, n_steps=5, n_samples=2, by=None)
    if method != "occlusion":  # which does not tell features apart
        assert np.abs(found.attribution[..., 1]).max() < 1e-7
        assert np.abs(found.attribution[..., 0]).max() > 1e-3


def test_a_lesion_by_hand_is_attributed_under_like_any_model():
    model, x = made(Classifier), batch()
    with gs.intervene(model, "forget_gate", 0.0, unit=2):
        found = gs.attribution(model, x, target=1)
    lesioned = opened(
        model, x, lambda name, value, time: value * (torch.arange(5) != 2) if name == "forget_gate" else value
    )
    np.testing.assert_allclose(found.output, lesioned, atol=1e-12)
    assert not found.incomplete.any()


class Translator(nn.Module):
    """Reads with one network and writes three steps with another."""

    def __init__(self):
        super().__init__()
        self.reader = nn.GRU(3, 5, batch_first=True)
        self.writer = nn.GRUCell(5, 5)

    def forward(self, x):
        state = self.reader(x)[1][0]
        read, shown = state, []
        for _ in range(3):
            state = self.writer(read, state)
            shown.append(state)
        return torch.stack(shown, 1)


def test_a_network_that_takes_other_steps_than_its_input_has_is_attributed_to():
    model, x = made(Translator), batch()
    asked = {"target": lambda output: output[:, -1, 0], "n_steps": 20}
    found = gs.attribution(model, x, to="update_gate", module="writer", **asked)
    assert dict(found.sizes) == {"sequence": 3, "time": 3, "unit": 5}
    assert not found.incomplete.any()
    gate = gs.attribution(model, x, target=gs.unit("update_gate", unit=1, time=2, module="writer"))
    assert (np.abs(gate.by_step) > 1e-6).all()
    across = gs.attribution(
        model, x, target=gs.unit("update_gate", unit=1, module="writer"), to="hidden_state", module="reader"
    )
    assert dict(across.sizes) == {"sequence": 3, "time": 6, "unit": 5}


def test_lengths_that_are_all_shorter_than_the_batch_are_known_from_the_packing():
    model, x = made(Packing), batch()
    found = gs.attribution(model, (x, torch.tensor([5, 4, 2])), target=1, n_steps=5)
    assert found.length.values.tolist() == [5, 4, 2]
    assert (found.attribution.values[0, 5:] == 0).all()


def test_what_is_run_at_once_changes_nothing():
    model, x = made(Classifier), batch()
    for to in ("input", "cell_state"):
        whole = gs.attribution(model, x, target=1, to=to, n_steps=10)
        parts = gs.attribution(model, x, target=1, to=to, n_steps=10, batch_size=2)
        np.testing.assert_allclose(whole.attribution, parts.attribution, atol=1e-9)


def test_the_same_seed_draws_the_same():
    model, x = made(Classifier), batch()
    first, again, other = (
        gs.attribution(model, x, target=1, method="gradient_shap", stdev=0.1, seed=seed).attribution.values
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-4


def test_a_path_with_too_few_points_is_marked_and_says_what_to_do():
    model, x = made(Classifier), 20 * batch()
    found = gs.attribution(model, x, target=1, n_steps=2)
    assert found.incomplete.any()
    assert "raise n_steps" in found.attrs["warning"]
    missed = np.abs(found.completeness_delta) > 0.05 * np.abs(found.output - found.baseline_output)
    np.testing.assert_array_equal(found.incomplete, missed)


@pytest.mark.parametrize("to", ["input", "cell_state", "initial_state"])
def test_the_result_goes_to_disk_and_back(to, tmp_path):
    model, x = made(Classifier), batch()
    labels = None if to == "initial_state" else {"token": ["abcdef"] * 3}
    found = gs.attribution(model, x, target=1, to=to, n_steps=3, labels=labels)
    assert all(isinstance(value, (int, float, str)) for value in found.attrs.values())
    assert {"method", "to", "target", "module", "baseline", "n_steps", "seed", "together"} <= set(found.attrs)
    found.to_netcdf(tmp_path / "found.nc", engine="h5netcdf")
    import xarray as xr

    with xr.open_dataset(tmp_path / "found.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again.attribution, found.attribution)
