"""The progress of a training run, as checkpoints store it and callbacks get it."""

import math
from dataclasses import dataclass, field

from holobind.training.config import TrainConfig


@dataclass
class TrainState:
    """The progress of a run. For each epoch `history` has an entry of its loss and metric (if rows were held out), and
    `timings` one of its seconds since the start and rows per second."""

    epoch: int = 0
    step: int = 0  # of this epoch
    steps: int = 0  # of every epoch
    loss: float = math.nan  # mean over this epoch so far, over all processes
    total_loss: float = 0.0
    best: float = -math.inf
    best_epoch: int = -1
    seconds: float = 0.0
    validation_seconds: float = 0.0  # of the last validation
    rows_per_second: float = math.nan
    finished: bool = False
    history: list[dict[str, float]] = field(default_factory=list)
    timings: list[dict[str, float]] = field(default_factory=list)

    def is_possible(self, config: TrainConfig, steps: int) -> bool:
        """Whether a run of this config can have this progress: a file may claim anything."""
        assert config.epochs is not None
        return (
            all(type(getattr(self, name)) is type(value) for name, value in vars(TrainState()).items())
            and all(type(entry) is dict for entry in self.history + self.timings)
            and self.steps == steps
            and len(self.history) == len(self.timings) == self.epoch <= config.epochs
            and 0 <= self.step <= steps
            and -1 <= self.best_epoch < max(1, self.epoch)
            and self.seconds >= 0
        )
