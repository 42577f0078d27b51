"""From data to a model: options, the closed form, and the training loop.

The names below are imported when first used: the table of options, `config`, does not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holobind.training.config import ModelConfig as ModelConfig
    from holobind.training.config import TrainConfig as TrainConfig
    from holobind.training.learning import Callbacks as Callbacks
    from holobind.training.learning import learn as learn
    from holobind.training.learning import partial_fit as partial_fit

_HOME = {
    "Callbacks": "learning",
    "ModelConfig": "config",
    "TrainConfig": "config",
    "learn": "learning",
    "partial_fit": "learning",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'holobind.training' has no attribute '{name}'")
    return getattr(import_module(f"holobind.training.{_HOME[name]}"), name)
