"""The scikit-learn estimator: what `learning.learn` makes, behind fit, predict and score."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from holobind import model as models
from holobind._targets import Targets, ordered, top_k_matrix
from holobind.data import Split
from holobind.data.csr import from_arrays
from holobind.errors import DataError, FileError
from holobind.training.config import ModelConfig
from holobind.training.learning import Callbacks, learn, more
from holobind.training.loop import TrainConfig, TrainState

SETTINGS = tuple(field.name for field in fields(ModelConfig))


class HolographicClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels for sparse features or texts: any number of them, for the cost of `dim` outputs.

        clf = HolographicClassifier().fit(X, y)
        clf.predict(X)          what y was: classes, label sets, or an indicator matrix
        clf.top_k(X, 5)         scores and label numbers, best first
        clf.save("model.safetensors")

    X is a matrix of features, sparse or dense, or with text=True a list of texts, whose tf-idf becomes part of the
    model; with network="cnn" or "lstm", their tokenizer. y is one of

    - a vector with one class a row;
    - a list of sets (or lists, or tuples) of label names;
    - an indicator matrix, sparse or dense (a list of lists of 0 and 1, all as long, is one, too, as everywhere in
      scikit-learn: label numbers are safer in sets).

    Parameters
    ----------
    threshold : a label is predicted where its score is above this. None predicts for every row as many labels, the
        best, as a training point has on average, because the scores of rare labels seldom reach any one threshold. It
        has no effect where y has one class a row.
    verbose : tell on stderr how fitting goes.
    All others are those of `holobind.ModelConfig`, where they are explained; None stands for a choice by the data.

    Attributes
    ----------
    model_ : the `holobind.Model`
    classes_ : the label names in order of their numbers; 0 to L - 1 for an indicator
    n_features_in_, feature_names_in_ : as everywhere, but not with text=True

    It passes scikit-learn's `check_estimator` without exemptions. `GridSearchCV` looks into y to choose its folds and
    refuses label sets: give it folds, cv=KFold(5), or an indicator.
    """

    model_: models.Model
    targets_: Targets
    classes_: NDArray[Any]
    n_features_in_: int
    turns_: int

    def __init__(
        self,
        *,
        network: str = "linear",
        head: str = "holographic",
        loss: str | None = None,
        dim: int | None = None,
        codebook: str = "orbit",
        trainable: Sequence[str] = (),
        linear_skip: bool = False,
        hidden: Sequence[int] | None = None,
        dropout: float | None = None,
        feature_dropout: float | None = None,
        l2: float | None = None,
        rare_label_boost: float = 0.1,
        knn_weight: float | None = None,
        normalise: bool = True,
        text: bool = False,
        tokenizer: str = "word",
        vocab_size: int = 50_000,
        max_tokens: int = 500,
        word_vectors: str | Path | None = None,
        embedding_dim: int | None = None,
        filters: int = 128,
        hidden_size: int = 256,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        feature_learning_rate: float | None = None,
        weight_decay: float = 0.0,
        patience: int = 3,
        validation: float = 0.1,
        precision: str = "32-true",
        time_limit: float | None = None,
        seed: int = 0,
        threshold: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.head = head
        self.loss = loss
        self.dim = dim
        self.codebook = codebook
        self.trainable = learn
        self.linear_skip = linear_skip
        self.hidden = hidden
        self.dropout = dropout
        self.feature_dropout = feature_dropout
        self.l2 = l2
        self.rare_label_boost = rare_label_boost
        self.knn_weight = knn_weight
        self.normalise = normalise
        self.text = text
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_tokens = max_tokens
        self.word_vectors = word_vectors
        self.embedding_dim = embedding_dim
        self.filters = filters
        self.hidden_size = hidden_size
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.feature_learning_rate = feature_learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation = validation
        self.precision = precision
        self.time_limit = time_limit
        self.seed = seed
        self.threshold = threshold
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from points X with labels y, from scratch."""
        return self._start(X, y, self._recipe())

    def partial_fit(self, X: Any, y: Any, classes: Iterable[Any] | None = None) -> Self:
        """Learn from some more points.

        classes   all labels there will be, if the first call's y has not all of them; an indicator has

        A network that is solved in closed form (the default) solves each portion, with the l2 of the first, and takes
        the mean over all points so far: less than solving all points at once gives, the less the smaller the portions
        are, but the order of portions does not matter. Points of portions are kept to be recalled only if `recall` is
        given, or if `fit` came before. Any other network passes over the points once, in steps at a
        steady rate with nothing held out, and with an optimiser that starts anew. The words of a model with text=True
        are those of the first call.
        """
        config = self._recipe()
        if not hasattr(self, "model_"):
            return self._start(
                X, y, replace(config, epochs=1, validation=0.0, patience=0, knn_weight=config.knn_weight or 0), classes
            )
        if classes is not None and not np.array_equal(ordered(classes), self.classes_):
            raise DataError("classes are others than in the first call of partial_fit; call fit to start anew")
        part = self._part(X, self.targets_.to_csr(y), y)
        more(self.model_, part, config, self.turns_)
        self.turns_ += 1
        return self

    def predict(self, X: Any) -> Any:
        """Labels in the form that y had; label sets come as tuples in order of the labels.

        How many a row gets, unless y has one class a row, is the matter of `threshold`.
        """
        inputs = self._inputs(X)
        if self.targets_.kind != "classes" and self.threshold is not None:
            found = self.model_.present(inputs, self.threshold)
            return self.targets_.back(from_arrays(found.data, found.indices, found.indptr, found.shape))
        _, ids = self.model_.top_k(inputs, self._labels_a_point())
        return self.targets_.back(top_k_matrix(ids, self.model_.n_labels))

    def top_k(self, X: Any, k: int = 5) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The k best labels of each row: their scores, best first, and their numbers, which index `classes_`.

        Shapes: -> 2 x (rows, k)
        """
        inputs = self._inputs(X)
        return self.model_.top_k(inputs, k)

    def predict_names(self, X: Any, k: int = 5) -> list[list[Any]]:
        """The names of the k best labels of each row, best first; in an indicator, numbers are names."""
        return [list(self.classes_[ids]) for ids in self.top_k(X, k)[1]]

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """The score of every label; for two classes the second's minus the first's.  Shapes: -> (rows, L) or (rows)"""
        inputs = self._inputs(X)
        scores = self.model_.scores(inputs)
        binary = self.targets_.kind == "classes" and len(self.classes_) == 2
        return scores[:, 1] - scores[:, 0] if binary else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1: the share of points whose best label is right. Where y has one class a row, this is the accuracy."""
        best = self.top_k(X, 1)[1][:, 0]
        check_consistent_length(best, y, sample_weight)
        if self.targets_.kind == "classes":
            right = self.classes_[best] == np.asarray(y)
        else:
            known = self.targets_.to_csr(y)
            right = np.asarray(known[np.arange(len(best)), best]) > 0
        return float(np.average(right, weights=sample_weight))

    def save(self, path: str | Path) -> None:
        """Write one file, which `HolographicClassifier.load`, `holobind.load` and the command line read."""
        check_is_fitted(self, "model_")
        self.model_.metadata["estimator"] = {**self.targets_.as_json(), "threshold": self.threshold}
        self.model_.save(path)

    @classmethod
    def load(cls, path: str | Path) -> "HolographicClassifier":
        """The estimator of a model file, also of one that the command line wrote."""
        model = models.load(path)
        said, options = (model.metadata.get(name, {}) for name in ("estimator", "config"))
        try:
            known = {name: _plain(value) for name, value in dict(options).items() if name in SETTINGS}
            ModelConfig(**known)
            threshold = dict(said).get("threshold")
            found = cls(**{**known, "text": model.reads_texts}, threshold=threshold and float(threshold))
            found._adopt(model, Targets.from_json(said, model.label_names, model.n_labels))
        except (DataError, TypeError, ValueError) as error:
            raise FileError(f"{path} does not say how to predict with it: {error}") from error
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.text
        tags.input_tags.two_d_array = not self.text
        tags.input_tags.string = bool(self.text)
        tags.classifier_tags.multi_label = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _recipe(self) -> ModelConfig:
        return ModelConfig(**{name: _plain(getattr(self, name)) for name in SETTINGS})

    def _start(self, X: Any, y: Any, config: ModelConfig, classes: Iterable[Any] | None = None) -> Self:
        targets = Targets.of(y, classes)
        part = self._part(X, targets.to_csr(y), y, reset=True)
        watch = Callbacks(solving=_tell_solving, training=_tell_training) if self.verbose else None
        self._adopt(learn(part, config, label_names=targets.label_names, watch=watch), targets)
        return self

    def _adopt(self, model: models.Model, targets: Targets) -> None:
        self.model_, self.targets_, self.classes_, self.turns_ = model, targets, targets.classes, 1
        if model.tfidf is None and model.network.n_features is not None:
            self.n_features_in_ = model.network.n_features

    def _part(self, X: Any, Y: Any, y: Any, *, reset: bool = False) -> Split:
        """Points as `learn` takes them."""
        inputs = self._checked(X, reset)
        check_consistent_length(inputs, y)
        if self.text:
            nothing = from_arrays(np.empty(0, np.float32), np.empty(0), np.zeros(len(inputs) + 1), (len(inputs), 0))
            return Split(nothing, Y, inputs)
        return Split(inputs, Y)

    def _inputs(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._checked(X, reset=False)

    def _checked(self, X: Any, reset: bool) -> Any:
        if self.text:
            texts = models._texts(X)
            if texts is None:
                raise DataError(f"with text=True, X is a list of texts; got {type(X).__name__}")
            return texts
        return sparse.csr_array(validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32))

    def _labels_a_point(self) -> int:
        if self.targets_.kind == "classes":
            return 1
        counts, points = self.model_.frequencies
        return int(np.clip(round(counts.sum() / points), 1, self.model_.n_labels))


def _plain(value: Any) -> Any:
    """Numbers of numpy, of which grids of parameters are made, as Python's; lists as tuples."""
    if isinstance(value, np.generic):
        return value.item()
    return tuple(_plain(item) for item in value) if isinstance(value, list | np.ndarray) else value


def _tell_solving(stage: str, share: float) -> None:
    if share == 1:
        sys.stderr.write(f"solved: {stage}\n")


def _tell_training(at: TrainState, plan: TrainConfig) -> None:
    if at.step == 0 and at.history:
        sys.stderr.write(", ".join(f"{name} {value:.5g}" for name, value in at.history[-1].items()) + "\n")
