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
    from holobind import ridge_knn as ridge_knn
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
    from holobind.codebooks import AbsoluteCodebook as AbsoluteCodebook
    from holobind.codebooks import BiasedCodebook as BiasedCodebook
    from holobind.codebooks import Codebook as Codebook
    from holobind.codebooks import CodebookEmbedding as CodebookEmbedding
    from holobind.codebooks import DenseCodebook as DenseCodebook
    from holobind.codebooks import OneHotCodebook as OneHotCodebook
    from holobind.codebooks import OrbitCodebook as OrbitCodebook
    from holobind.codebooks import RandomCodebook as RandomCodebook
    from holobind.data import Dataset as Dataset
    from holobind.data import Split as Split
    from holobind.errors import DataError as DataError
    from holobind.errors import DTypeError as DTypeError
    from holobind.errors import ExpressionError as ExpressionError
    from holobind.errors import FileError as FileError
    from holobind.errors import HolobindError as HolobindError
    from holobind.errors import LabelError as LabelError
    from holobind.errors import OptionError as OptionError
    from holobind.errors import ShapeError as ShapeError
    from holobind.errors import UnknownNameError as UnknownNameError
    from holobind.estimator import HolographicClassifier as HolographicClassifier
    from holobind.heads import ExportableHead as ExportableHead
    from holobind.heads import HolographicCrossEntropyLoss as HolographicCrossEntropyLoss
    from holobind.heads import HolographicHead as HolographicHead
    from holobind.heads import LinearHead as LinearHead
    from holobind.heads import frequency_prior as frequency_prior
    from holobind.heads.losses import present_and_missing as present_and_missing
    from holobind.heads.losses import query_loss as query_loss
    from holobind.heads.losses import regression_loss as regression_loss
    from holobind.heads.losses import softmax_loss as softmax_loss
    from holobind.model import Model as Model
    from holobind.model import load as load
    from holobind.symbols import structures as structures
    from holobind.symbols import vsa as vsa
    from holobind.symbols.capacity import dimension_for as dimension_for
    from holobind.symbols.capacity import expected_error as expected_error
    from holobind.symbols.capacity import pairs_held as pairs_held
    from holobind.symbols.vocabulary import Answer as Answer
    from holobind.symbols.vocabulary import LargeVocabulary as LargeVocabulary
    from holobind.symbols.vocabulary import Statement as Statement
    from holobind.symbols.vocabulary import Vocabulary as Vocabulary
    from holobind.training import Callbacks as Callbacks
    from holobind.training import ModelConfig as ModelConfig
    from holobind.training import TrainConfig as TrainConfig
    from holobind.training import learn as learn

__version__ = "0.2.0"

_MODULES = {
    "data": "data",
    "metrics": "metrics",
    "networks": "networks",
    "ridge_knn": "ridge_knn",
    "structures": "symbols.structures",
    "vsa": "symbols.vsa",
}
_NAMES = {
    "algebra": "bind bundle identity inverse involution permute power random similarity unbind unitary",
    "codebooks": "AbsoluteCodebook BiasedCodebook Codebook CodebookEmbedding DenseCodebook OneHotCodebook "
    "OrbitCodebook RandomCodebook",
    "data": "Dataset Split",
    "errors": "DataError DTypeError ExpressionError FileError HolobindError LabelError OptionError ShapeError "
    "UnknownNameError",
    "estimator": "HolographicClassifier",
    "heads": "ExportableHead HolographicCrossEntropyLoss HolographicHead LinearHead frequency_prior",
    "heads.losses": "present_and_missing query_loss regression_loss softmax_loss",
    "model": "Model load",
    "symbols.capacity": "dimension_for expected_error pairs_held",
    "symbols.vocabulary": "Answer LargeVocabulary Statement Vocabulary",
    "training": "Callbacks ModelConfig TrainConfig learn",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, *_HOME])  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value: object = import_module(f"holobind.{_MODULES[name]}")
    elif name in _HOME:
        value = getattr(import_module(f"holobind.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'holobind' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
