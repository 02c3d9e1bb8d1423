"""Each unit's own levels: where its retention usually lies, what counts as a fall of it, how far its memory spreads."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Values = npt.NDArray[np.floating]

FURTHEST, PER_LOGIT = 9.0, 4  # logits are counted between these ends, in so many bins each
EDGES = np.linspace(-FURTHEST, FURTHEST, int(2 * FURTHEST * PER_LOGIT) + 1)
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2
GAIN = 0.02  # nats per step by which two levels must describe a unit better than one
FALL = 3.0  # without two levels: so many upper half-spreads below the median
