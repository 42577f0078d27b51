"""Differentiable symbolic algebra on vectors, and output layers for very many labels, for PyTorch.

The names below are the whole public API. They are imported when first used: `import holobind` does not
import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holobind import structures, vsa
    from holobind.algebra import (
        bind,
        bundle,
        identity,
        inverse,
        involution,
        permute,
        power,
        random,
        similarity,
        unbind,
        unitary,
    )
    from holobind.codebook import Codebook, DenseCodebook, OrbitCodebook, RandomCodebook
    from holobind.errors import (
        DTypeError,
        ExpressionError,
        FileError,
        HolobindError,
        LabelError,
        OptionError,
        ShapeError,
        UnknownNameError,
    )
    from holobind.noise import capacity, dimension_for, pairs_held
    from holobind.vocabulary import Answer, LargeVocabulary, Statement, Vocabulary

__version__ = "0.1.0"

_HOME = {
    "bind": "algebra",
    "bundle": "algebra",
    "identity": "algebra",
    "inverse": "algebra",
    "involution": "algebra",
    "permute": "algebra",
    "power": "algebra",
    "random": "algebra",
    "similarity": "algebra",
    "unbind": "algebra",
    "unitary": "algebra",
    "Codebook": "codebook",
    "DenseCodebook": "codebook",
    "OrbitCodebook": "codebook",
    "RandomCodebook": "codebook",
    "DTypeError": "errors",
    "ExpressionError": "errors",
    "FileError": "errors",
    "HolobindError": "errors",
    "LabelError": "errors",
    "OptionError": "errors",
    "ShapeError": "errors",
    "UnknownNameError": "errors",
    "capacity": "noise",
    "dimension_for": "noise",
    "pairs_held": "noise",
    "Answer": "vocabulary",
    "LargeVocabulary": "vocabulary",
    "Statement": "vocabulary",
    "Vocabulary": "vocabulary",
}
_MODULES = ("structures", "vsa")

__all__ = [
    "Answer",
    "Codebook",
    "DTypeError",
    "DenseCodebook",
    "ExpressionError",
    "FileError",
    "HolobindError",
    "LabelError",
    "LargeVocabulary",
    "OptionError",
    "OrbitCodebook",
    "RandomCodebook",
    "ShapeError",
    "Statement",
    "UnknownNameError",
    "Vocabulary",
    "bind",
    "bundle",
    "capacity",
    "dimension_for",
    "identity",
    "inverse",
    "involution",
    "pairs_held",
    "permute",
    "power",
    "random",
    "similarity",
    "structures",
    "unbind",
    "unitary",
    "vsa",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"holobind.{name}")
    if name in _HOME:
        value = getattr(import_module(f"holobind.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'holobind' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
