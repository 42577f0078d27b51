"""Differentiable symbolic algebra on vectors, and output layers for very many labels, for PyTorch.

The names below are the whole public API. They are imported when first used: `import holobind` does not
import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holobind import data as data
    from holobind import metrics as metrics
    from holobind import networks as networks
    from holobind import solve as solve
    from holobind import structures as structures
    from holobind import vsa as vsa
    from holobind.algebra import bind as bind
    from holobind.algebra import bundle as bundle
    from holobind.algebra import identity as identity
    from holobind.algebra import inverse as inverse
    from holobind.algebra import involution as involution
    from holobind.algebra import permute as permute
    from holobind.algebra import power as power
    from holobind.algebra import random as random
    from holobind.algebra import similarity as similarity
    from holobind.algebra import unbind as unbind
    from holobind.algebra import unitary as unitary
    from holobind.classifier import HolographicClassifier as HolographicClassifier
    from holobind.codebook import Codebook as Codebook
    from holobind.codebook import DenseCodebook as DenseCodebook
    from holobind.codebook import OrbitCodebook as OrbitCodebook
    from holobind.codebook import RandomCodebook as RandomCodebook
    from holobind.codebook import ShiftedCodebook as ShiftedCodebook
    from holobind.codebook import UnitCodebook as UnitCodebook
    from holobind.errors import DataError as DataError
    from holobind.errors import DTypeError as DTypeError
    from holobind.errors import ExpressionError as ExpressionError
    from holobind.errors import FileError as FileError
    from holobind.errors import HolobindError as HolobindError
    from holobind.errors import LabelError as LabelError
    from holobind.errors import OptionError as OptionError
    from holobind.errors import ShapeError as ShapeError
    from holobind.errors import UnknownNameError as UnknownNameError
    from holobind.head import HolographicHead as HolographicHead
    from holobind.head import LinearHead as LinearHead
    from holobind.head import frequency_prior as frequency_prior
    from holobind.learning import learn as learn
    from holobind.losses import present_and_missing as present_and_missing
    from holobind.losses import query_loss as query_loss
    from holobind.losses import regression_loss as regression_loss
    from holobind.losses import softmax_loss as softmax_loss
    from holobind.model import Model as Model
    from holobind.model import load as load
    from holobind.noise import capacity as capacity
    from holobind.noise import dimension_for as dimension_for
    from holobind.noise import pairs_held as pairs_held
    from holobind.recipe import Recipe as Recipe
    from holobind.vocabulary import Answer as Answer
    from holobind.vocabulary import LargeVocabulary as LargeVocabulary
    from holobind.vocabulary import Statement as Statement
    from holobind.vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

_MODULES = ("data", "metrics", "networks", "solve", "structures", "vsa")
_NAMES = {
    "algebra": "bind bundle identity inverse involution permute power random similarity unbind unitary",
    "classifier": "HolographicClassifier",
    "codebook": "Codebook DenseCodebook OrbitCodebook RandomCodebook ShiftedCodebook UnitCodebook",
    "errors": "DataError DTypeError ExpressionError FileError HolobindError LabelError OptionError ShapeError "
    "UnknownNameError",
    "head": "HolographicHead LinearHead frequency_prior",
    "learning": "learn",
    "losses": "present_and_missing query_loss regression_loss softmax_loss",
    "model": "Model load",
    "noise": "capacity dimension_for pairs_held",
    "recipe": "Recipe",
    "vocabulary": "Answer LargeVocabulary Statement Vocabulary",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, *_HOME])  # noqa: PLE0605


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
