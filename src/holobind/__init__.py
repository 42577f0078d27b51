"""Differentiable symbolic algebra on vectors, and output layers for very many labels, for PyTorch.

The names below are the whole public API. They are imported when first used: `import holobind` does not
import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holobind import data, metrics, vsa
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
    from holobind.errors import DataError, DTypeError, HolobindError, LabelError, OptionError, ShapeError

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
    "DTypeError": "errors",
    "DataError": "errors",
    "HolobindError": "errors",
    "LabelError": "errors",
    "OptionError": "errors",
    "ShapeError": "errors",
}
_MODULES = ("data", "metrics", "vsa")

__all__ = [
    "DTypeError",
    "DataError",
    "HolobindError",
    "LabelError",
    "OptionError",
    "ShapeError",
    "bind",
    "bundle",
    "data",
    "identity",
    "inverse",
    "involution",
    "metrics",
    "permute",
    "power",
    "random",
    "similarity",
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
