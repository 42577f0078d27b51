"""Label vectors that are drawn from a seed, scored by FFT and never stored."""

from holobind.codebooks.base import Codebook
from holobind.codebooks.biased import BiasedCodebook
from holobind.codebooks.one_hot import OneHotCodebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.codebooks.random import RandomCodebook
from holobind.codebooks.stored import DenseCodebook

__all__ = ["Codebook", "DenseCodebook", "OrbitCodebook", "RandomCodebook", "BiasedCodebook", "OneHotCodebook"]
