"""What to train: network, head, dimension and plan, with a choice by the data for whatever is not said."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from holobind import metrics
from holobind.errors import OptionError

NetworkName = Literal["linear", "fc", "cnn", "lstm"]
HeadName = Literal["holographic", "linear"]
LossName = Literal["ridge", "softmax", "query", "query-abs", "regression", "bce"]
CodebookName = Literal["orbit", "random", "naive"]
TokenizerName = Literal["word", "bpe"]


@dataclass(frozen=True)
class ModelConfig:
    """What to train; None stands for a choice by the data or by the network.

    network    "linear": features to output by one matrix. "fc": the paper's two hidden layers of 512. From texts,
               word by word: "cnn", XML-CNN, and "lstm", a bidirectional LSTM with attention
    head       "holographic", or "linear" with one output a label
    loss       "ridge" solves a linear network in closed form (its default). Holographic heads: "softmax" (the default
               of others), "query" (the paper's), "query-abs", "regression". Linear heads: "bce" (default), "softmax"
    dim        numbers in the holographic output; up to 1024, or 2048 if errors are recalled, but no more than the
               labels need
    codebook   "orbit", "random" (the paper's), "naive" (its failed ablation); see `HolographicHead`
    linear_skip       a linear path beside the hidden layers of fc, which starts from the closed form
    hidden     sizes of the hidden layers: 512, 512 of fc, 512 of cnn, which has one, 256 of lstm
    dropout    share of hidden units left out in training: 0 of fc, else 0.5
    feature_dropout   share of the features left out: 0; of the numbers in words' vectors: 0.25 of cnn, 0.2 of lstm
    l2        the penalty of the closed form; None: chosen on held-out rows
    rare_label_boost       how much more rare labels weigh in the closed form of a holographic head: scores come out times
               (n_max / n)^rare_label_boost for a label that n points have. 0.2 serves the rare_label_boost of the labels (PSP@k)
    recall     how much of the mean error of the closed form on the 30 nearest training rows is added to its output:
               None is chosen on held-out rows, and 0 recalls nothing, so that no row is kept. It wants a holographic
               head with the orbit codebook, and rows of length 1 (`normalise`)
    normalise  scale rows of features to length 1
    text       make features of the texts, even if the data brings some; None: where errors are recalled. cnn and lstm
               read texts in any case

    Of cnn and lstm:

    tokenizer      "word", or "bpe": the frequent parts of words
    vocabulary     how many different tokens, at most
    max_tokens        how many tokens of a text are read
    word_vectors   a file of word vectors to start from, in the text format of GloVe, word2vec and fastText
    embedding_dim      numbers in the vector of a word; 300, or what the file has
    filters        of cnn, for each of its widths, 2, 4 and 8
    hidden_size         of lstm, in each direction

    Of what is trained, more in `plan.TrainConfig`:

    epochs, batch_size   by the number of points
    learning_rate  its peak: 0.001 of fc, else, and with `linear_skip`, 0.003
    feature_learning_rate   that of the layer on features, or of words' vectors: 0.01 of fc, a feature being in few batches;
                   else, and wherever a learning_rate is given, the same as that
    """

    network: NetworkName = "linear"
    head: HeadName = "holographic"
    loss: LossName | None = None
    dim: int | None = None
    codebook: CodebookName = "orbit"
    trainable: Sequence[Literal["present", "missing", "labels"]] = ()
    linear_skip: bool = False
    hidden: Sequence[int] | None = None
    dropout: float | None = None
    feature_dropout: float | None = None
    l2: float | None = None
    rare_label_boost: float = 0.1
    knn_weight: float | None = None
    normalise: bool = True
    text: bool | None = None
    tokenizer: TokenizerName = "word"
    vocab_size: int = 50_000
    max_tokens: int = 500
    word_vectors: str | Path | None = None
    embedding_dim: int | None = None
    filters: int = 128
    hidden_size: int = 256
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    feature_learning_rate: float | None = None
    weight_decay: float = 0.0
    patience: int = 3
    validation: float = 0.1
    precision: str = "32-true"
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("network", get_args(NetworkName)),
            ("head", get_args(HeadName)),
            ("loss", (None, *get_args(LossName))),
            ("codebook", get_args(CodebookName)),
            ("tokenizer", get_args(TokenizerName)),
        ):
            if getattr(self, name) not in allowed:
                said = ", ".join(str(value) for value in allowed if value is not None)
                raise OptionError(f"{name} must be one of {said}; got {getattr(self, name)!r}")
        for name in ("dim", "epochs", "batch_size", "embedding_dim"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise OptionError(f"{name} must be a whole number from 1, or None to have it chosen; got {value!r}")
        for name, least in (("vocab_size", 3), ("max_tokens", 1), ("filters", 1), ("hidden_size", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise OptionError(f"{name} must be a whole number from {least}; got {value!r}")
        for name in ("l2", "learning_rate", "feature_learning_rate", "time_limit"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise OptionError(f"{name} must be a positive number, or None; got {value!r}")
        if not (isinstance(self.rare_label_boost, int | float) and 0 <= self.rare_label_boost <= 1):
            raise OptionError(f"rare_label_boost is a number from 0 to 1; got {self.rare_label_boost!r}")
        for name in ("dropout", "feature_dropout"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < 1):
                raise OptionError(f"{name} is a share from 0 to below 1; got {value!r}")
        fits = (
            ("ridge", "bce", "softmax")
            if self.head == "linear"
            else ("ridge", "softmax", "query", "query-abs", "regression")
        )
        if self.loss not in (None, *fits):
            raise OptionError(f"a {self.head} head has the losses {', '.join(fits)}; got {self.loss!r}")
        if self.loss == "ridge" and self.network != "linear":
            raise OptionError(f"the ridge loss is solved for network 'linear'; got network {self.network!r}")
        if self.linear_skip and self.network != "fc":
            raise OptionError(f"linear_skip is of network 'fc'; got network {self.network!r}")
        if self.knn_weight is not None and not (
            isinstance(self.knn_weight, int | float) and 0 <= self.knn_weight < math.inf
        ):
            raise OptionError(f"knn_weight is a number from 0, or None to have it chosen; got {self.knn_weight!r}")
        if self.knn_weight and not self._can_use_knn:
            raise OptionError(
                "only the closed form with a holographic head, the orbit codebook and rows of length 1 recalls errors; "
                f"got knn_weight {self.knn_weight!r} beside other options"
            )
        if self.hidden is not None and not len(self.hidden):
            raise OptionError("hidden must have at least one size, as in (512,)")
        if self.network == "cnn" and self.hidden is not None and len(self.hidden) != 1:
            raise OptionError(f"network 'cnn' has one hidden layer; got {len(self.hidden)} sizes")
        if self.word_vectors is not None and self.tokenizer != "word":
            raise OptionError(f"word_vectors are of words; take tokenizer 'word', not {self.tokenizer!r}")

    @property
    def solved(self) -> bool:
        """Whether the closed form is all there is to it."""
        return self.network == "linear" and self.loss in (None, "ridge")

    @property
    def uses_knn(self) -> bool:
        """Whether errors on training rows are added to the closed form."""
        return self._can_use_knn and self.knn_weight != 0

    @property
    def _can_use_knn(self) -> bool:
        orbit = self.head == "holographic" and self.codebook == "orbit" and not self.trainable
        return self.solved and orbit and self.normalise

    @property
    def reads_words(self) -> bool:
        """Whether the network is one for texts, word by word."""
        return self.network in ("cnn", "lstm")


MEASURES: dict[str, Callable[[Any, NDArray[np.int64]], NDArray[np.float64]]] = {
    "P": metrics.precision_at_k,
    "nDCG": metrics.ndcg_at_k,
    "R": metrics.recall_at_k,
}
PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    batch_size      rows of a step, over all processes together
    learning_rate   its peak: it rises over the first `warmup` share of the steps, then falls to 0 like a cosine
    feature_learning_rate    that of the layers of which a batch touches a few rows, of features or words; None: the same
    clip            the max_tokens gradient; 0: any
    patience        epochs without a better validation measure after which to stop; 0: never
    validation      share of the training rows held out to measure on (2,000 at most)
    measure         which of P@k, nDCG@k, R@k decides the best epoch
    precision       "32-true" or "bf16-mixed", which pays where the processor multiplies bfloat16 (docs/scaling.md)
    time_limit      seconds after which to have finished, the learning rate fallen to 0; None: no limit
    """

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-3
    feature_learning_rate: float | None = None
    warmup: float = 0.05
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
        for name in ("learning_rate", "feature_learning_rate", "weight_decay", "clip", "patience", "seed"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise OptionError(f"train: {name} must be a number and not negative; got {value}")
        for name in ("warmup", "validation"):
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
        if done < self.warmup:
            return done / self.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - self.warmup) / (1 - self.warmup))))


@dataclass
class TrainState:
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

    def possible(self, plan: TrainConfig, steps: int) -> bool:
        """Whether a run of this plan can be here: what a file says may be anything."""
        return (
            all(type(getattr(self, name)) is type(value) for name, value in vars(TrainState()).items())
            and all(type(entry) is dict for entry in self.history)
            and self.steps == steps
            and len(self.history) == self.epoch <= plan.epochs
            and 0 <= self.step <= steps
            and -1 <= self.best_epoch < max(1, self.epoch)
            and self.seconds >= 0
        )
