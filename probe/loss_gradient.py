"""The true gradient of a loss at every state of every step of an unmodified model."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .arguments import named_arguments
from .capture import Capture
from .find import choose_one
from .following import Following
from .loss_profile import QUANTILES, summarise
from .observe import observe


def loss_gradient(
    model: nn.Module,
    inputs: Any,
    loss: Callable[[Any], Tensor],
    *,
    module: str | None = None,
    inputs_kwargs: Mapping[str, Any] | None = None,
    lengths: Any = None,
    tolerance: float = 1e-4,
) -> xr.Dataset:
    """How a loss would change if a state were moved: dL/dh_t and dL/dc_t at every step, layer and direction.

    With `s_t` all states after step t and `z` the pre-activations of the gates,

        dL/ds_t = (what reaches s_t from outside the recurrence) + (ds_{t+1}/ds_t)^T dL/ds_{t+1},

    a total derivative, through all later steps and all layers above; dL/dc_t counts its way into h_t of the same step.
    The `.grad` of a fused module's output is only the first term. The model runs once, as it is, in the mode it is in,
    and is left as it was: parameters, their `.grad` and `requires_grad`, buffers, mode, hooks, random numbers. Norms
    are carried as logarithms, so that a gradient of 1e-100 is that and not 0.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with recurrent modules inside; in `train()` or `eval()`, frozen or not.
    inputs
        What the model is called with: a tuple holds its arguments, anything else is its only one.
    loss
        `loss(output)` gives the number to differentiate, a tensor of one element.
    module
        Path of the recurrent module to look at; may be left out where there is one.
    inputs_kwargs
        Named arguments of the call.
    lengths
        Real steps of each sequence, (sequence,), where a batch is padded without being packed.
    tolerance
        Largest difference allowed between rebuilt and own states, as for `attach`.

    Returns
    -------
    Dataset
        Dims (layer, direction, sequence, time) in all but the profiles; padding is NaN:

        - `hidden_state_gradient` and, by the names of the cell's other states, `cell_state_gradient` (..., unit or
          projection): the gradients; float64 where float32 could not hold them.
        - `gradient_norm` (state, ...): log10 of their Euclidean norm over units; -inf where a gradient is exactly 0.
        - `gate_norm` (gate, ...): log10 of the norm of the gradient at each gate's pre-activation.
        - `arriving_norm`: log10 of the norm of what reaches the shown state from outside its recurrence: from the loss
          in the last layer, from the layer above in the others.
        - `distance` (direction, sequence, time): steps of recurrence between this step and the last one at which the
          loss reaches the module, 0 there; NaN behind it, where every gradient is 0.
        - `profile` (quantity, layer, direction, distance, quantile): `gradient_norm` and `gate_norm` by distance:
          quantiles 0.1, 0.5 and 0.9 over the steps of all sequences at that distance.
        - `depth_norm` (layer, sequence): log10 of the norm of the gradient at all shown states of a layer together, and
          `input_norm` (layer, sequence): the same at all that the layer read. How much is lost from layer to layer.

    Raises
    ------
    ValueError
        If the gradient would not be whole: the model or the loss detaches, leaves torch or runs under `no_grad` on a
        way from the states to the loss, or the loss depends on no state. If several modules were found and none is
        named, none was called, or the loss is no single number.
    TypeError
        If the model has nothing that can be observed, or the loss is no function or gives no tensor.
    ParityError
        If the rebuilt states are not the model's own.

    References
    ----------
    Backpropagation through time: Werbos (1990), doi:10.1109/5.58337. Vanishing gradients: Bengio, Simard and Frasconi
    (1994), doi:10.1109/72.279181.

    Examples
    --------
    A plain RNN without squashing, `h_t = relu(h_{t-1} / 2)`: the gradient halves with every step back.

    >>> rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    >>> for weight, value in zip(rnn.parameters(), (1.0, 0.5)):
    ...     _ = nn.init.constant_(weight, value)
    >>> found = loss_gradient(rnn, torch.ones(4, 1, 1), lambda output: output[0][-1].sum())
    >>> found.hidden_state_gradient.values.ravel()
    array([0.125, 0.25 , 0.5  , 1.   ], dtype=float32)
    """
    path, part = choose_one(model, module)
    if not callable(loss):
        raise TypeError(f"loss must be a function of the model's output; {type(loss).__name__} came. Give a lambda.")
    if any(weight.is_inference() for weight in model.parameters()):
        raise ValueError(
            "the model's weights must be known to autograd; some were made under torch.inference_mode(). Make or load "
            "the model outside of it."
        )
    named = named_arguments(inputs_kwargs)
    args = inputs if isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence) else (inputs,)
    capture = Capture(model, path, observe(path, part), tolerance)
    with left_as_it_was(model, part):
        with Following() as following, capture.listening(following):
            output = model(*args, **named)
            if not capture.calls:
                raise ValueError(
                    f"the model must call {path!r}, through its module; it did not with these inputs. Name another "
                    "module or give other inputs."
                )
            value = loss(output)
        refuse_partial(value, following, path)
        if not any(shape.numel() for taken in capture.calls for shape in taken.shapes):
            raise ValueError(f"{path!r} must read at least one sequence; none came. Give inputs that hold some.")
        found = capture.gradients(value)
    result = summarise(found, capture.track, lengths)
    return result.assign_attrs(
        module=path, cell=type(capture.track.cells[0][0]).__name__, loss=float(value.detach()), quantiles=str(QUANTILES)
    )


def refuse_partial(value: Any, following: Following, path: str) -> None:
    """Raise where the loss is no number, or autograd does not know all of how it depends on the states."""
    if not isinstance(value, Tensor):
        raise TypeError(f"loss must give a tensor; {type(value).__name__} came. Leave out .item() and float().")
    if value.numel() != 1 or not value.is_floating_point():
        raise ValueError(
            f"loss must give a single number; {tuple(value.shape)} of {value.dtype} came. Take its sum or mean."
        )
    lost = following.lost(value)
    if following.spoiled or lost:
        what = following.spoiled or f"it is computed with what {lost} has cut off from them"
        raise ValueError(
            f"the loss must depend on the states of {path!r} in ways that autograd sees; {what}. The gradient would be "
            "partial: leave that out of the model's forward and the loss."
        )
    if following.depending.of(value) is None or not value.requires_grad:
        raise ValueError(
            f"the loss must depend on the states of {path!r}; it does not. Name another module, or give a loss that "
            "uses what the model makes of them."
        )


@contextmanager
def left_as_it_was(model: nn.Module, part: nn.Module) -> Iterator[None]:
    """For a `with` block gradients are on; afterwards nothing in the model or the generators has changed."""
    weights = [weight for weight in part.parameters() if weight.is_floating_point() and not weight.requires_grad]
    gradients = [(weight, weight.grad) for weight in model.parameters()]
    buffers = [(owner, name, b, b.clone()) for owner in model.modules() for name, b in named_buffers(owner)]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type == "cuda"}
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(devices)))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if devices:
            stack.enter_context(differentiable_in_eval())
        try:
            for weight in weights:
                weight.requires_grad_()
            for weight, _ in gradients:
                weight.grad = None  # a loss that calls backward() adds to nothing of the caller's
            yield
        finally:
            for weight, gradient in gradients:
                weight.grad = gradient
            for weight in weights:
                weight.requires_grad_(False)
            restore(buffers)


def named_buffers(owner: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, buffer) for name, buffer in owner._buffers.items() if buffer is not None]


def restore(buffers: list[tuple[nn.Module, str, Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for owner, name, buffer, before in buffers:
            owner._buffers[name] = buffer
            if not torch.equal(buffer, before):
                buffer.copy_(before)


def differentiable_in_eval() -> AbstractContextManager[Any]:
    """cuDNN's recurrent kernels have no backward pass in eval(); torch's own kernels have one."""
    return torch.backends.cudnn.flags(enabled=False)
