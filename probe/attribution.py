"""What a model's output hangs on: attribution to inputs, gates and states of unmodified recurrent models, by Captum."""

from collections.abc import Mapping
from typing import Any

import xarray as xr
from torch import nn

from .attribution_asked import Asked, baseline_values
from .attribution_checks import (
    check_finite,
    check_options,
    check_weights,
    check_window,
    checked_output,
    described,
    is_by_step,
    is_number,
    rows_at_once,
    selected,
)
from .attribution_methods import Settings, method_named
from .attribution_result import dataset, label_coordinates, with_warning
from .attribution_runs import held
from .attribution_sources import SignalSource
from .attribution_target import Target
from .find import require_module
from .labels import check_source

TOLERANCE = 0.05


def attribution(
    model: nn.Module,
    inputs: Any,
    *,
    target: Target = None,
    method: str = "integrated_gradients",
    to: str = "input",
    module: str | None = None,
    layer: int | None = None,
    direction: str | None = None,
    unit: Any = None,
    time: Any = None,
    baseline: Any = 0.0,
    together: bool | None = None,
    by: str | None = None,
    lengths: Any = None,
    labels: Mapping[str, Any] | None = None,
    inputs_kwargs: Mapping[str, Any] | None = None,
    batch_first: bool | None = None,
    embedding: str | None = None,
    n_steps: int = 50,
    n_samples: int = 25,
    stdev: float = 0.0,
    window: int = 1,
    batch_size: int | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> xr.Dataset:
    """What a target hangs on: how much of it each step of the input, of a gate or of a state accounts for, by Captum.

    The target is one number per sequence: an output, or a unit's gate or state inside the recurrence. The model is run
    in `eval()`, fused where only its input is asked about, opened (`gatescope.opened`) where something inside is.
    Lengths and other arguments go with their sequence and are never changed; padding gets exactly 0. Afterwards modes,
    parameters, their `.grad` and `requires_grad`, buffers, hooks and random numbers of torch and numpy are what they
    were, also after an error.

    *Steps together or each for itself.* The input, gates and candidates are changed at all steps at once: a path
    method's attribution then adds up over all steps to `F(x) - F(baseline)`. A state follows from the state before, so
    that each step of it is a question of its own: if the state were the baseline at this step and everything after
    followed from that. It adds up over the units of each step, to `F(x) - F(state at this step = baseline)`, and
    gradients are total, as in `loss_gradient`. Of an LSTM's two states the other one stays.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with recurrent modules inside.
    inputs
        What the model is called with: a tuple holds its arguments, anything else is its only one. The first tensor or
        `PackedSequence` is the input; whole numbers are attributed to at the output of their embedding.
    target
        A class of an output (sequence, class), one class for each sequence, or (time, class) of an output with steps,
        where time -1 is each sequence's own last one; a function of the output that gives one number per sequence;
        `gatescope.unit(...)` for a unit inside; `None` for an output that is one number per sequence.
    method
        `"saliency"` (the gradient, with its sign), `"input_x_gradient"`, `"integrated_gradients"`, `"gradient_shap"`,
        `"feature_ablation"`, `"occlusion"` or `"shapley_value_sampling"`.
    to
        `"input"`, `"initial_state"`, or a signal: a gate, a candidate, a state, a `"..._preactivation"`.
    module, layer, direction
        Of which recurrent module, layer and direction; may be left out where there is one. For the initial state all
        layers and directions are taken unless named.
    unit, time
        Units (or features) and steps to attribute to: a whole number, several, or a slice; all by default.
    baseline
        What is compared with: a number; an array (time, feature) or (sequence, time, feature); for whole numbers as
        input also an array of such numbers, (time,) or (sequence, time), for instance all padding; for the initial
        state also a state in the module's own form. For gradient_shap an array of three dims is (draw, time, feature).
    together
        Whether steps of a signal are changed together or each for itself, see above.
    by
        For methods that take values away: `"feature"`, each for itself, or `"step"`, all of a step at once, by default
        for embeddings and occlusion.
    lengths
        Real steps of each sequence, where a batch is padded and the model does not pack it.
    labels
        Name -> labels (sequence, time), kept as coordinates, for instance the tokens.
    inputs_kwargs
        Named arguments of the call.
    batch_first
        Whether the first dim of the input is the sequence; found out from what comes to the recurrent module.
    embedding
        Path of the module that makes vectors of whole numbers, where there are several.
    n_steps
        Points on the path of integrated_gradients.
    n_samples
        Draws of gradient_shap, and orders of shapley_value_sampling.
    stdev
        Standard deviation of the noise that gradient_shap adds.
    window
        Steps that occlusion covers at once.
    batch_size
        Rows that are run at once; by default as many as keep memory low, 512 at most.
    tolerance
        Share of the change of the target that an attribution may miss before it is marked.
    seed
        Of the block's own random numbers.

    Returns
    -------
    Dataset
        Dims (sequence, time, feature), with `unit` in the place of `feature` for signals; for the initial state
        (sequence, layer, direction, state, unit).

        - `attribution`: in units of the target (saliency: per unit of the value). Not there with `by="step"`.
        - `by_step` (sequence, time): its sum over features; with `by="step"` what all of a step account for.
        - `output` (sequence): the target, and `baseline_output`: the target at the baseline.
        - `completeness_delta` (sequence), for states (sequence, time): the sum of the attribution less
          `output - baseline_output`. The error of methods that promise completeness; of ablation and occlusion, what
          goes together. Not there for gradients.
        - `incomplete` (as the delta): where a method that promises completeness misses more than `tolerance` of it.
          The attribute `warning` then says what to do.
        - `value`: what the model has there, and `baseline`, where that is no single number.

    Raises
    ------
    ValueError
        If the target does not fit the output, a unit, step, layer or method is not there, the baseline is of another
        shape, the target is not finite or depends on what stands beside a sequence, or autograd does not see how the
        target depends on the values. For DeepLift and LRP, whose rules do not fire inside a recurrence: they would be
        input x gradient under another name.
    TypeError
        If the model has nothing that can be observed, or an argument is of the wrong kind.

    References
    ----------
    Integrated gradients and completeness: Sundararajan, Taly and Yan (2017), arXiv:1703.01365. GradientSHAP: Lundberg
    and Lee (2017), arXiv:1705.07874. Shapley value sampling: Castro, Gomez and Tejada (2009),
    doi:10.1016/j.cor.2008.04.004. Captum: Kokhlikyan et al. (2020), arXiv:2009.07896.

    Examples
    --------
    A plain RNN without squashing, `h_t = x_t + h_{t-1} / 2`: a step counts half as much as the one after it.

    >>> import torch
    >>> rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    >>> for weight, value in zip(rnn.parameters(), (1.0, 0.5)):
    ...     _ = nn.init.constant_(weight, value)
    >>> found = attribution(rnn, torch.ones(4, 1, 1), target=(-1, 0))
    >>> found.by_step.values.round(3)
    array([[0.125, 0.25 , 0.5  , 1.   ]], dtype=float32)
    >>> float(found.output[0])
    1.875
    """
    require_module(model)
    check_weights(model)
    chosen = method_named(method)
    check_source(labels)
    check_options(
        by,
        {"n_steps": n_steps, "n_samples": n_samples, "window": window, "batch_size": batch_size},
        stdev,
        tolerance,
        seed,
    )
    with held(model, seed):
        asked = Asked(
            model,
            inputs,
            inputs_kwargs,
            target,
            to=to,
            module=module,
            lengths=lengths,
            batch_first=batch_first,
            embedding=embedding,
        )
        asked.find_site()
        source = asked.runs.source = asked.source(layer, direction)
        output = checked_output(asked)
        asking = selected(asked, source, chosen, together, layer, direction, unit, time)
        check_window(asking, chosen, window)
        marks = label_coordinates(asking, labels)
        rows = batch_size or rows_at_once(source)
        settings = Settings(n_steps, n_samples, stdev, window, is_by_step(by, chosen, source), rows)
        draws = method == "gradient_shap"
        start = baseline_values(baseline, source, draws)
        answer = asking.answer(chosen, output, start, settings, draws)
        check_finite(answer.output, asking.at_real_steps(answer.baseline_output), answer.values)
        shown = start if chosen.compares and not is_number(baseline) else None
        result = dataset(asking, answer, chosen, settings, shown).assign_coords(marks)
    result = with_warning(result, chosen, tolerance)
    where = {"layer": source.layer, "direction": source.direction} if isinstance(source, SignalSource) else {}
    return result.assign_attrs(
        **{name: getattr(settings, name) for name in chosen.takes},
        **where,
        method=method,
        to=to,
        target=described(target),
        module=asked.path,
        cell=asked.kind,
        baseline="none" if not chosen.compares else float(baseline) if is_number(baseline) else "given",
        initial_state="baseline" if to == "initial_state" else "the model's own",
        together=int(asking.together),
        by="step" if settings.by_step else "feature",
        seed=seed,
    )
