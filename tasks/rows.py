"""Which networks a table is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from .experiment import VARIANTS, Setting
from .reported import REPORTED

SWEEPS = ("alpha", "gamma", "bias", "decay")
ALPHAS = (0.1, 0.2, 0.5, 0.8, 1.0)
GAMMAS = (0.9, 0.95, 0.99, 0.999)
FACTORS = (0.5, 1, 2)


def chosen_rows(
    task: str, variants: Sequence[str] = (), sweep: str | None = None, *, seed: int = 0, max_streams: int | None = None
) -> dict[str, Setting]:
    """The settings of the rows that were asked for, by name.

    Raises
    ------
    ValueError
        For a row or a sweep that there is not.
    """
    if sweep is not None:
        if variants:
            raise ValueError("rows are chosen by --variants or by --sweep; both came. Leave one out.")
        rows = swept(task, sweep)
    else:
        rows = named(task, variants)
    return {
        row: replace(setting, variant=row, seed=seed, max_streams=max_streams or setting.max_streams)
        for row, setting in rows.items()
    }


def named(task: str, variants: Sequence[str]) -> dict[str, Setting]:
    """Rows by name. Without any those of the report, for ERG and with `all` all that there are."""
    there = {row: setting for row, setting in VARIANTS.items() if setting.task == task}
    if list(variants) == ["all"] or (task == "erg" and not variants):
        return there
    for row in variants:
        if row not in there:
            raise ValueError(f"--variants must name rows of {task}; {row!r} came.{nearest(row, there)}")
    return {row: there[row] for row in (dict.fromkeys(variants) or [row for row in there if row in REPORTED[task]])}


def with_biases_times(factor: float, setting: Setting) -> Setting:
    """The first biases of all gates times a factor."""

    def times(biases: tuple[float, ...] | None) -> tuple[float, ...]:
        return tuple(factor * bias for bias in biases or ())

    return replace(
        setting,
        input_bias=times(setting.input_bias),
        forget_bias=times(setting.forget_bias),
        output_bias=times(setting.output_bias),
    )


def nearest(name: str, names: Mapping[str, object]) -> str:
    close = get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(names)}, or all."


def swept(task: str, sweep: str) -> dict[str, Setting]:
    """The rows of a sweep: one network of the report with one of its settings varied."""
    if task != "cerg":
        raise ValueError(f"--sweep goes with cerg; {task} came. Leave it out.")
    forget, decaying = VARIANTS["forget"], VARIANTS["forget-alpha-decay"]
    if sweep == "alpha":
        return {f"forget-alpha-{alpha}": replace(forget, alpha=alpha) for alpha in ALPHAS}
    if sweep == "gamma":
        return {f"forget-gamma-{gamma}": replace(decaying, alpha_decay=gamma) for gamma in GAMMAS}
    if sweep == "bias":
        drawn = replace(forget, input_bias=None, forget_bias=None, output_bias=None)  # as all other weights are
        return {"forget-biases-drawn": drawn} | {
            f"forget-biases-times-{factor}": with_biases_times(factor, forget) for factor in FACTORS
        }
    if sweep == "decay":
        return {row: setting for row, setting in sorted(VARIANTS.items()) if row.startswith("decay-")}
    close = get_close_matches(sweep, SWEEPS, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else "Name one of them."
    raise ValueError(f"--sweep must be one of {', '.join(SWEEPS)}; {sweep!r} came. {hint}")
