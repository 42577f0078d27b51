"""Label vectors that are drawn from a seed, scored by FFT and never stored."""

from holobind.codebooks.absolute import AbsoluteCodebook
from holobind.codebooks.base import Codebook
from holobind.codebooks.biased import BiasedCodebook
from holobind.codebooks.dense import DenseCodebook
from holobind.codebooks.embedding import CodebookEmbedding
from holobind.codebooks.one_hot import OneHotCodebook
from holobind.codebooks.orbit import OrbitCodebook
from holobind.codebooks.random import RandomCodebook

__all__ = [
    "AbsoluteCodebook",
    "BiasedCodebook",
    "Codebook",
    "CodebookEmbedding",
    "DenseCodebook",
    "OneHotCodebook",
    "OrbitCodebook",
    "RandomCodebook",
]
