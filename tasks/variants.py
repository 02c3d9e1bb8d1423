"""The rows of the tables: networks and ways to learn that are compared."""

from dataclasses import replace
from typing import Any

from .setting import Setting
from .wiring import CERG_WIRING, ERG_WIRING, Forget, Wiring


def cerg(variant: str, **changed: Any) -> Setting:
    return Setting(variant=variant, **changed)


def without_gate(forget: Forget = "none") -> Wiring:
    return replace(CERG_WIRING, forget=forget)


def erg(variant: str, wiring: Wiring, alpha: float = 0.5) -> Setting:
    return Setting(
        task="erg",
        variant=variant,
        wiring=wiring,
        external_reset=True,
        alpha=alpha,
        input_bias=None,
        output_bias=(-1.0, -2.0, -3.0),
        forget_bias=None,
        max_streams=200_000,
    )


UNSEEN = replace(ERG_WIRING, gates_see_gates=False)

VARIANTS: dict[str, Setting] = {
    setting.variant: setting
    for setting in (
        cerg("external-reset", wiring=without_gate(), external_reset=True),
        cerg("1997", wiring=without_gate()),
        cerg("decay-0.9", wiring=without_gate(0.9)),
        cerg("forget"),
        cerg("forget-alpha-decay", alpha_decay=0.99),
        cerg("decay-0.8", wiring=without_gate(0.8)),
        cerg("decay-0.95", wiring=without_gate(0.95)),
        cerg("decay-0.99", wiring=without_gate(0.99)),
        cerg("weight-decay", wiring=without_gate(), weight_decay=1e-5),
        cerg("restart-20000", restart_after=20_000),
        cerg("no-shortcut", wiring=replace(CERG_WIRING, shortcut=False)),
        erg("lstm", ERG_WIRING),
        erg("no-output-gate", replace(ERG_WIRING, output_gate=False)),
        erg("unseen-gates", UNSEEN, alpha=0.2),
        erg("unseen-gates-no-output-gate", replace(UNSEEN, output_gate=False), alpha=0.2),
    )
}
"""The rows of the tables: the first five of CERG and the first of ERG are the reports' own."""
