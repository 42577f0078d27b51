"""What to train: network, head, dimension and plan, with a choice by the data for whatever is not said."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from holobind.errors import OptionError

NetworkName = Literal["linear", "fc", "cnn", "lstm"]
HeadName = Literal["holographic", "linear"]
LossName = Literal["ridge", "softmax", "query", "query-abs", "regression", "bce"]
CodebookName = Literal["orbit", "random", "naive"]
TokenizerName = Literal["word", "bpe"]


@dataclass(frozen=True)
class Recipe:
    """What to train; None stands for a choice by the data or by the network.

    network    "linear": features to output by one matrix. "fc": the paper's two hidden layers of 512. From texts,
               word by word: "cnn", XML-CNN, and "lstm", a bidirectional LSTM with attention
    head       "holographic", or "linear" with one output a label
    loss       "ridge" solves a linear network in closed form (its default). Holographic heads: "softmax" (the default
               of others), "query" (the paper's), "query-abs", "regression". Linear heads: "bce" (default), "softmax"
    dim        numbers in the holographic output; up to 1024, or 2048 if errors are recalled, but no more than the
               labels need
    codebook   "orbit", "random" (the paper's), "naive" (its failed ablation); see `HolographicHead`
    wide       a linear path beside the hidden layers of fc, which starts from the closed form
    hidden     sizes of the hidden layers: 512, 512 of fc, 512 of cnn, which has one, 256 of lstm
    dropout    share of hidden units left out in training: 0 of fc, else 0.5
    feature_dropout   share of the features left out: 0; of the numbers in words' vectors: 0.25 of cnn, 0.2 of lstm
    lam        the penalty of the closed form; None: chosen on held-out rows
    tail       how much more rare labels weigh in the closed form of a holographic head: scores come out times
               (n_max / n)^tail for a label that n points have. 0.2 serves the tail of the labels (PSP@k)
    recall     how much of the mean error of the closed form on the 30 nearest training rows is added to its output:
               None is chosen on held-out rows, and 0 recalls nothing, so that no row is kept. It wants a holographic
               head with the orbit codebook, and rows of length 1 (`normalise`)
    normalise  scale rows of features to length 1
    text       make features of the texts, even if the data brings some; None: where errors are recalled. cnn and lstm
               read texts in any case

    Of cnn and lstm:

    tokenizer      "word", or "bpe": the frequent parts of words
    vocabulary     how many different tokens, at most
    longest        how many tokens of a text are read
    word_vectors   a file of word vectors to start from, in the text format of GloVe, word2vec and fastText
    embedding      numbers in the vector of a word; 300, or what the file has
    filters        of cnn, for each of its widths, 2, 4 and 8
    states         of lstm, in each direction

    Of what is trained, more in `plan.Plan`:

    epochs, batch_size   by the number of points
    learning_rate  its peak: 0.001 of fc, else, and with `wide`, 0.003
    feature_rate   that of the layer on features, or of words' vectors: 0.01 of fc, a feature being in few batches;
                   else, and wherever a learning_rate is given, the same as that
    """

    network: NetworkName = "linear"
    head: HeadName = "holographic"
    loss: LossName | None = None
    dim: int | None = None
    codebook: CodebookName = "orbit"
    learn: Sequence[Literal["present", "missing", "labels"]] = ()
    wide: bool = False
    hidden: Sequence[int] | None = None
    dropout: float | None = None
    feature_dropout: float | None = None
    lam: float | None = None
    tail: float = 0.1
    recall: float | None = None
    normalise: bool = True
    text: bool | None = None
    tokenizer: TokenizerName = "word"
    vocabulary: int = 50_000
    longest: int = 500
    word_vectors: str | Path | None = None
    embedding: int | None = None
    filters: int = 128
    states: int = 256
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    feature_rate: float | None = None
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
        for name in ("dim", "epochs", "batch_size", "embedding"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise OptionError(f"{name} must be a whole number from 1, or None to have it chosen; got {value!r}")
        for name, least in (("vocabulary", 3), ("longest", 1), ("filters", 1), ("states", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise OptionError(f"{name} must be a whole number from {least}; got {value!r}")
        for name in ("lam", "learning_rate", "feature_rate", "time_limit"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise OptionError(f"{name} must be a positive number, or None; got {value!r}")
        if not (isinstance(self.tail, int | float) and 0 <= self.tail <= 1):
            raise OptionError(f"tail is a number from 0 to 1; got {self.tail!r}")
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
        if self.wide and self.network != "fc":
            raise OptionError(f"wide is of network 'fc'; got network {self.network!r}")
        if self.recall is not None and not (isinstance(self.recall, int | float) and 0 <= self.recall < math.inf):
            raise OptionError(f"recall is a number from 0, or None to have it chosen; got {self.recall!r}")
        if self.recall and not self._may_recall:
            raise OptionError(
                "only the closed form with a holographic head, the orbit codebook and rows of length 1 recalls errors; "
                f"got recall {self.recall!r} beside other options"
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
    def recalls(self) -> bool:
        """Whether errors on training rows are added to the closed form."""
        return self._may_recall and self.recall != 0

    @property
    def _may_recall(self) -> bool:
        orbit = self.head == "holographic" and self.codebook == "orbit" and not self.learn
        return self.solved and orbit and self.normalise

    @property
    def reads_words(self) -> bool:
        """Whether the network is one for texts, word by word."""
        return self.network in ("cnn", "lstm")
