"""Differentiable symbolic algebra on vectors, and output layers for very many labels, for PyTorch.

The names below are the whole public API. They are imported when first used: `import holobind` does not
import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holobind import vsa
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
    from holobind.errors import DTypeError, HolobindError, LabelError, OptionError, ShapeError
    from holobind.head import HolographicHead, LinearHead
    from holobind.losses import present_and_missing, query_loss, regression_loss, softmax_loss

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
    "HolobindError": "errors",
    "LabelError": "errors",
    "HolographicHead": "head",
    "LinearHead": "head",
    "present_and_missing": "losses",
    "query_loss": "losses",
    "regression_loss": "losses",
    "softmax_loss": "losses",
    "OptionError": "errors",
    "ShapeError": "errors",
}
_MODULES = ("vsa",)

__all__ = [
    "Codebook",
    "DTypeError",
    "DenseCodebook",
    "HolobindError",
    "HolographicHead",
    "LabelError",
    "LinearHead",
    "OptionError",
    "OrbitCodebook",
    "RandomCodebook",
    "ShapeError",
    "bind",
    "bundle",
    "identity",
    "inverse",
    "involution",
    "permute",
    "power",
    "present_and_missing",
    "query_loss",
    "random",
    "regression_loss",
    "similarity",
    "softmax_loss",
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
