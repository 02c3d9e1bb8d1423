"""Captum's methods on one form of question: values (example, ...), where they start from, and whose rows they are."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Forward = Callable[..., Tensor]


class Settings(NamedTuple):
    """What the methods can be told; each takes what it needs."""

    n_steps: int
    n_samples: int
    stdev: float
    window: int
    by_step: bool
    batch_size: int


class Question(NamedTuple):
    """Examples to attribute to at once: `extra` holds, for each, what `forward` needs besides its values."""

    forward: Forward
    values: Tensor
    baseline: Tensor  # of the shape of `values`; for gradient_shap (draw, ...)
    extra: tuple[Tensor, ...]

    def groups(self, by_step: bool) -> Tensor | None:
        """Which values are taken away together: all of a step, or (None) each for itself."""
        if not by_step:
            return None
        shape = self.values.shape[1:]
        steps = torch.arange(shape[0]).unsqueeze(1) if len(shape) == 2 else torch.zeros(1, dtype=torch.long)
        return steps.expand(shape).unsqueeze(0).to(self.values.device).contiguous()


def saliency(question: Question, settings: Settings) -> Tensor:
    from captum.attr import Saliency

    found: Tensor = Saliency(question.forward).attribute(
        question.values.detach().requires_grad_(), abs=False, additional_forward_args=question.extra
    )
    return found


def input_x_gradient(question: Question, settings: Settings) -> Tensor:
    from captum.attr import InputXGradient

    found: Tensor = InputXGradient(question.forward).attribute(
        question.values.detach().requires_grad_(), additional_forward_args=question.extra
    )
    return found


def integrated_gradients(question: Question, settings: Settings) -> Tensor:
    from captum.attr import IntegratedGradients

    found: Tensor = IntegratedGradients(question.forward).attribute(
        question.values,
        baselines=question.baseline,
        additional_forward_args=question.extra,
        n_steps=settings.n_steps,
        internal_batch_size=max(settings.batch_size, len(question.values)),
    )
    return found


def gradient_shap(question: Question, settings: Settings) -> Tensor:
    """Drawn in parts of as many samples as fit into a batch."""
    from captum.attr import GradientShap

    method, total, left = GradientShap(question.forward), torch.zeros_like(question.values), settings.n_samples
    while left:
        now = min(left, max(1, settings.batch_size // len(question.values)))
        total += now * method.attribute(
            question.values,
            baselines=question.baseline,
            n_samples=now,
            stdevs=settings.stdev,
            additional_forward_args=question.extra,
        )
        left -= now
    return total / settings.n_samples


def feature_ablation(question: Question, settings: Settings) -> Tensor:
    from captum.attr import FeatureAblation

    found: Tensor = FeatureAblation(question.forward).attribute(
        question.values,
        baselines=question.baseline,
        additional_forward_args=question.extra,
        feature_mask=question.groups(settings.by_step),
        perturbations_per_eval=at_once(question, settings),
    )
    return found


def occlusion(question: Question, settings: Settings) -> Tensor:
    from captum.attr import Occlusion

    width = question.values.shape[-1]
    found: Tensor = Occlusion(question.forward).attribute(
        question.values,
        sliding_window_shapes=(settings.window, width),
        strides=(1, width),
        baselines=question.baseline,
        additional_forward_args=question.extra,
        perturbations_per_eval=at_once(question, settings),
    )
    return found


def shapley_value_sampling(question: Question, settings: Settings) -> Tensor:
    from captum.attr import ShapleyValueSampling

    found: Tensor = ShapleyValueSampling(question.forward).attribute(
        question.values,
        baselines=question.baseline,
        additional_forward_args=question.extra,
        feature_mask=question.groups(settings.by_step),
        n_samples=settings.n_samples,
        perturbations_per_eval=at_once(question, settings),
    )
    return found


def at_once(question: Question, settings: Settings) -> int:
    """Changed copies of the examples that fit into a batch; no more than there are values to change."""
    return max(1, min(settings.batch_size // len(question.values), question.values[0].numel()))


class Method(NamedTuple):
    """A method, what it is told and what it promises."""

    attribute: Callable[[Question, Settings], Tensor]
    takes: tuple[str, ...] = ()  # of the settings
    compares: bool = True  # with a baseline
    complete: bool = False  # what it gives to all values adds up to the change of the target, up to its own error
    groups: bool = False  # whether it can take all values of a step away together


METHODS = {
    "saliency": Method(saliency, compares=False),
    "input_x_gradient": Method(input_x_gradient, compares=False),
    "integrated_gradients": Method(integrated_gradients, ("n_steps",), complete=True),
    "gradient_shap": Method(gradient_shap, ("n_samples", "stdev"), complete=True),
    "feature_ablation": Method(feature_ablation, groups=True),
    "occlusion": Method(occlusion, ("window",), groups=True),
    "shapley_value_sampling": Method(shapley_value_sampling, ("n_samples",), complete=True, groups=True),
}
DEGENERATE = {
    "deep_lift": "its rules are for modules such as nn.Sigmoid, and a recurrence has none: fused or opened, what comes "
    "out is input x gradient, which does not add up",
    "lrp": "it has rules for linear layers, ReLU and tanh modules only, and none for the products of gates and states",
}


def method_named(name: str) -> Method:
    """The method of a name; one sentence for those that would not be what they say, and for unknown ones."""
    plain = str(name).lower().replace("-", "_").replace("deeplift", "deep_lift")
    for degenerate, reason in DEGENERATE.items():
        if plain.startswith(degenerate):
            raise ValueError(
                f"method must be right for recurrent networks; {name!r} is not: {reason}. Take 'integrated_gradients'."
            )
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; {name!r} came.")
    return METHODS[name]


def pieces(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def attributed(method: Method, question: Question, settings: Settings, draws: bool) -> Tensor:
    """All examples, as many at once as fit into a batch."""
    found = []
    for part in pieces(len(question.values), settings.batch_size):
        here = Question(
            question.forward,
            question.values[part],
            question.baseline if draws else question.baseline[part],
            tuple(entry[part] for entry in question.extra),
        )
        found.append(asked(method, here, settings).detach())
    return torch.cat(found)


def asked(method: Method, question: Question, settings: Settings) -> Tensor:
    try:
        return method.attribute(question, settings)
    except RuntimeError as error:
        if "not have been used in the graph" in str(error) or "does not require grad" in str(error):
            raise ValueError(
                "the target must depend on what is attributed to in ways that autograd sees; it does not. Leave out "
                "detach() and no_grad, or take a method that takes values away, such as 'feature_ablation'."
            ) from error
        raise


def evaluated(question: Question, values: Tensor, size: int) -> Tensor:
    """The target at other values of the same examples."""
    with torch.no_grad():
        parts = [
            question.forward(values[part], *(entry[part] for entry in question.extra))
            for part in pieces(len(values), size)
        ]
    return torch.cat(parts)
