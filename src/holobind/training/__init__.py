"""From data to a model: options, the closed form, and the training loop."""

from holobind.training.config import ModelConfig, TrainConfig
from holobind.training.learning import Callbacks, learn

__all__ = ["Callbacks", "ModelConfig", "TrainConfig", "learn"]
