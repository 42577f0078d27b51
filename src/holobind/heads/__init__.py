"""Output layers for very many labels, and their losses."""

from holobind.heads.holographic import HolographicHead, frequency_prior, layer_rows
from holobind.heads.linear import LinearHead

Head = HolographicHead | LinearHead

__all__ = ["Head", "HolographicHead", "LinearHead", "frequency_prior", "layer_rows"]
