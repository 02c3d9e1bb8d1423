"""gatescope: see inside gated RNNs."""

from .signals import VERSION as __version__
