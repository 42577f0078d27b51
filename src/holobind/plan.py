"""How to train, and how far a run is."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holobind import metrics
from holobind.errors import OptionError

MEASURES: dict[str, Callable[[Any, NDArray[np.int64]], NDArray[np.float64]]] = {
    "P": metrics.precision_at_k,
    "nDCG": metrics.ndcg_at_k,
    "R": metrics.recall_at_k,
}
PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class Plan:
    """How to train.

    batch_size      rows of a step, over all processes together
    learning_rate   its peak: it rises over the first `warm_up` share of the steps, then falls to 0 like a cosine
    feature_rate    that of the layers of which a batch touches a few rows, of features or words; None: the same
    clip            the longest gradient; 0: any
    patience        epochs without a better validation measure after which to stop; 0: never
    validation      share of the training rows held out to measure on (2,000 at most)
    measure         which of P@k, nDCG@k, R@k decides the best epoch
    precision       "32-true" or "bf16-mixed", which pays where the processor multiplies bfloat16 (docs/scaling.md)
    time_limit      seconds after which to have finished, the learning rate fallen to 0; None: no limit
    """

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-3
    feature_rate: float | None = None
    warm_up: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    patience: int = 3
    validation: float = 0.1
    measure: str = "P@1"
    precision: str = "32-true"
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise OptionError(f"train: {name} must be 1 or more; got {getattr(self, name)}")
        for name in ("learning_rate", "feature_rate", "weight_decay", "clip", "patience", "seed"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise OptionError(f"train: {name} must be a number and not negative; got {value}")
        for name in ("warm_up", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"train: {name} is a share from 0 to below 1; got {getattr(self, name)}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise OptionError(f"train: time_limit must be positive; got {self.time_limit}")
        if self.precision not in PRECISIONS:
            raise OptionError(f"train: precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")
        name, _, k = self.measure.partition("@")
        if name not in MEASURES or not k.isdecimal() or int(k) < 1:
            raise OptionError(f"train: measure must be one of {', '.join(MEASURES)} @k; got {self.measure!r}")

    def pace(self, done: float) -> float:
        """The share of its peak that a learning rate has when a share of the run is done."""
        if done < self.warm_up:
            return done / self.warm_up
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warm_up) / (1 - self.warm_up))))


@dataclass
class Progress:
    """Where a run is. `history` has one entry for each epoch: loss, measure (if rows were held out), seconds,
    rows a second."""

    epoch: int = 0
    step: int = 0  # of this epoch
    steps: int = 0  # of every epoch
    loss: float = math.nan  # mean over this epoch so far, over all processes
    total: float = 0.0
    best: float = -math.inf
    best_epoch: int = -1
    seconds: float = 0.0
    measuring: float = 0.0  # seconds that the last validation took
    rows_a_second: float = math.nan
    finished: bool = False
    history: list[dict[str, float]] = field(default_factory=list)

    def possible(self, plan: Plan, steps: int) -> bool:
        """Whether a run of this plan can be here: what a file says may be anything."""
        return (
            all(type(getattr(self, name)) is type(value) for name, value in vars(Progress()).items())
            and all(type(entry) is dict for entry in self.history)
            and self.steps == steps
            and len(self.history) == self.epoch <= plan.epochs
            and 0 <= self.step <= steps
            and -1 <= self.best_epoch < max(1, self.epoch)
            and self.seconds >= 0
        )
