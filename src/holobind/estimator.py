"""The scikit-learn estimator: `training.learn` behind fit, predict and score."""

import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from holobind import model as models
from holobind._columns import as_list, as_texts
from holobind._targets import Targets, sorted_labels, top_k_matrix, with_label_texts
from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data import Split
from holobind.data.batches import Examples
from holobind.data.csr import check_ids, clear_rows, from_arrays
from holobind.data.label_texts import as_label_texts
from holobind.errors import DataError, FileError, OptionError
from holobind.label_sets import Objective
from holobind.predictions import NO_CALIBRATION
from holobind.training.config import OPTIONS, ModelConfig, TrainConfig, split_options
from holobind.training.learning import Callbacks, learn, partial_fit
from holobind.training.state import TrainState


def _has_probabilities(estimator: "HolographicClassifier") -> bool:
    model = getattr(estimator, "model_", None)
    if model is not None and model.calibration is None:
        raise AttributeError(NO_CALIBRATION)
    return True


class HolographicClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of sparse features or texts for any number of labels, at the cost of `dim` outputs.

        clf = HolographicClassifier().fit(X, y)
        clf.predict(X)          in the form of y: classes, label sets, or an indicator matrix
        clf.predict_proba(X)    calibrated probabilities of all labels
        clf.top_k(X, 5)         scores and label ids, best first
        clf.save("model.safetensors")

    X is a matrix of features, sparse or dense, or texts, whose tf-idf becomes part of the model; with network="cnn" or
    "lstm", their tokenizer does. Texts come as a list, an array, a generator, or a column of pandas, polars, Arrow or a
    Hugging Face dataset; the columns of a frame of texts are joined. y is one of

    - a vector with one class for each row;
    - a list of sets (or lists, or tuples) of label names;
    - an indicator matrix, sparse or dense. A list of lists of 0 and 1, all of one length, is also read as an indicator,
      as everywhere in scikit-learn: give label ids as sets.

    y may be a column or a generator, too.

    Parameters
    ----------
    text : X must be texts. False takes texts where X has them.
    vectorizer : for texts, a TfidfVectorizer, CountVectorizer or HashingVectorizer of scikit-learn that makes the
        features, in place of our own tf-idf. A copy of it is fitted. Its settings must be plain, because a model file
        stores them as JSON: a function, such as tokenizer=, is refused.
    label_texts : for texts, what labels are called: {label: text or [name, synonym, ...]}, or a file as for
        `holobind train --label-text`. Labels with few or no rows are suggested by their texts; labels that y does not
        have become part of `classes_`.
    threshold : predict a label where its score is above this. None chooses the number of labels of each row by
        `objective`; a model without probabilities predicts as many as a training row has on average. It has no effect
        where y has one class for each row.
    objective : what the number of labels is chosen by: "micro-f1", "sample-f1", "precision=0.8" or "recall=0.8".
    verbose : report the progress of fitting on stderr.
    All others are the options of `holobind.ModelConfig` and `holobind.TrainConfig`, explained in docs/training.md; None
    stands for a choice by the data.

    Attributes
    ----------
    model_ : the `holobind.Model`
    classes_ : the label names in order of their ids; 0 to L - 1 for an indicator
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn, but not where X has texts

    A row without any word or feature that the model knows says nothing about its labels. `predict` gives it no label
    where y has label sets or is an indicator; one class a row has to be some class, the best on average. The other
    methods return the scores of such a row, which are the same for all of them. The first time, a warning says so.

    It passes scikit-learn's `check_estimator` without exemptions. `GridSearchCV` inspects y to choose its folds and
    refuses label sets: give it folds, cv=KFold(5), or an indicator.
    """

    model_: models.Model
    targets_: Targets
    classes_: NDArray[Any]
    n_features_in_: int
    n_updates_: int

    def __init__(
        self,
        *,
        network: str = "linear",
        head: str = "holographic",
        loss: str | None = None,
        dim: int | None = None,
        codebook: str = "orbit",
        trainable: Sequence[str] = (),
        hard_negatives: int = 0,
        linear_skip: bool | None = None,
        hidden: Sequence[int] | None = None,
        dropout: float | None = None,
        feature_dropout: float | None = None,
        normalise: bool = True,
        text: bool = False,
        analyzer: str = "auto",
        encoder: str | Path | None = None,
        encoder_weight: float | None = None,
        l2: float | None = None,
        knn_weight: float | None = None,
        rare_label_boost: float = 0.1,
        label_trees: int | None = None,
        update: bool | None = None,
        tokenizer: str = "word",
        vocab_size: int = 50000,
        max_tokens: int = 500,
        word_vectors: str | Path | None = None,
        embedding_dim: int | None = None,
        filters: int = 128,
        hidden_size: int = 256,
        seed: int = 0,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        feature_learning_rate: float | None = None,
        label_learning_rate: float | None = None,
        warmup: float = 0.05,
        weight_decay: float = 0.0,
        clip_norm: float = 1.0,
        adam_epsilon: float = 1e-8,
        patience: int = 3,
        validation_fraction: float = 0.1,
        metric: str | None = None,
        precision: str = "32-true",
        shard_features: bool = False,
        time_limit: float | None = None,
        memory: str | None = None,
        vectorizer: Any = None,
        label_texts: Any = None,
        threshold: float | None = None,
        objective: str = "micro-f1",
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.head = head
        self.loss = loss
        self.dim = dim
        self.codebook = codebook
        self.trainable = trainable
        self.hard_negatives = hard_negatives
        self.linear_skip = linear_skip
        self.hidden = hidden
        self.dropout = dropout
        self.feature_dropout = feature_dropout
        self.normalise = normalise
        self.text = text
        self.analyzer = analyzer
        self.encoder = encoder
        self.encoder_weight = encoder_weight
        self.l2 = l2
        self.knn_weight = knn_weight
        self.rare_label_boost = rare_label_boost
        self.label_trees = label_trees
        self.update = update
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_tokens = max_tokens
        self.word_vectors = word_vectors
        self.embedding_dim = embedding_dim
        self.filters = filters
        self.hidden_size = hidden_size
        self.seed = seed
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.feature_learning_rate = feature_learning_rate
        self.label_learning_rate = label_learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.adam_epsilon = adam_epsilon
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.precision = precision
        self.shard_features = shard_features
        self.time_limit = time_limit
        self.memory = memory
        self.vectorizer = vectorizer
        self.label_texts = label_texts
        self.threshold = threshold
        self.objective = objective
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit a new model to rows X with labels y.

        groups   a name or number for each row, as for scikit-learn's GroupKFold: whole groups are held out for the
                 choice of settings. Give them where rows of one group resemble each other, and new rows are of others
        """
        return self._fit(X, y, *self._configs(), groups=groups)

    def partial_fit(self, X: Any, y: Any, classes: Iterable[Any] | None = None) -> Self:
        """Update the model with more rows.

        classes   all labels, if the first call's y does not have all of them; an indicator does

        The default model is then the same as after a fit to all rows with the penalty, the vocabulary and the settings
        that the first call chose (`Model.update`). It stores all rows. Where y has names, new ones become classes after
        the others, unless the first call was given `classes`. With `update=False`, or a linear head, the closed form
        solves each call's rows, and takes the mean over all rows so far, which is less accurate. Any other network is
        trained for one pass at a constant learning rate, with nothing held out and a new optimiser.
        """
        config, train_config = self._configs()
        if not hasattr(self, "model_"):
            stores_rows = config.update if config.knn_weight == 0 else config.update is not False
            if config.can_use_knn and stores_rows:
                config = replace(config, update=True)
            else:
                config = replace(config, knn_weight=config.knn_weight or 0)
            one_pass = replace(train_config, epochs=1, validation_fraction=0.0, patience=0)
            self._fit(X, y, config, one_pass, classes)
            self._all_classes_known = classes is not None
            return self
        if classes is not None and not np.array_equal(sorted_labels(classes), self.classes_):
            raise DataError("classes are others than in the first call of partial_fit; call fit to start anew")
        y = as_list(y)
        may_grow = self.model_.can_learn_on and not self._all_classes_known
        targets = self.targets_.grown_by(y) if may_grow else self.targets_
        split = self._split(X, targets.to_csr(y), y)
        self.model_ = partial_fit(self.model_, split, config, train_config, self.n_updates_, targets.label_names)
        self.targets_ = targets.ordered_as(self.model_.label_names)
        self.classes_ = self.targets_.classes
        self.n_updates_ += 1
        return self

    def predict(self, X: Any) -> Any:
        """Labels in the form that y had; label sets come as tuples in order of the labels.

        `threshold` or `objective` decides how many labels a row gets, unless y has one class for each row.
        """
        inputs, objective = self._inputs(X), Objective.parse(self.objective)
        if self.targets_.kind != "classes" and self.threshold is not None:
            found = self.model_.labels_above(inputs, self.threshold)
        elif self.targets_.kind != "classes" and self.model_.calibration is not None:
            found = top_k_matrix(self.model_.choose(inputs, objective).ids, self.model_.n_labels)
        else:
            found = top_k_matrix(self.model_.top_k(inputs, self._labels_per_row())[1], self.model_.n_labels)
        if self.targets_.kind != "classes" and (empty := inputs.empty_rows()).any():
            found = clear_rows(found, empty)
        return self.targets_.from_csr(found)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The calibrated probability of every label.  Shapes: -> (rows, L)

        Where y has one class for each row, the probabilities of a row are divided by their sum. They are calibrated on
        held-out rows; a model that had too few of them has none.
        """
        inputs = self._inputs(X)
        probabilities = self.model_.predict_proba(inputs).astype(np.float64)
        if self.targets_.kind == "classes":
            probabilities /= np.maximum(probabilities.sum(1, keepdims=True), np.finfo(np.float64).tiny)
        return probabilities

    def top_k(self, X: Any, k: int | None = None) -> tuple[FloatArray, IntArray]:
        """The k best labels of each row: their scores, best first, and their ids, which index `classes_`.

        k   by default 5, or all labels where they are fewer

        Shapes: -> 2 x (rows, k)
        """
        inputs = self._inputs(X)
        return self.model_.top_k(inputs, k)

    def predict_names(self, X: Any, k: int | None = None) -> list[list[Any]]:
        """The names of the k best labels of each row, best first; the names of an indicator's labels are their ids."""
        return [list(self.classes_[ids]) for ids in self.top_k(X, k)[1]]

    def decision_function(self, X: Any) -> FloatArray:
        """The score of every label; for two classes the second's minus the first's.  Shapes: -> (rows, L) or (rows)"""
        inputs = self._inputs(X)
        scores = self.model_.scores(inputs)
        binary = self.targets_.kind == "classes" and len(self.classes_) == 2
        return scores[:, 1] - scores[:, 0] if binary else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1: the fraction of rows whose best label is right. For one class a row, this is the accuracy.

        Labels that training did not have cannot be predicted: they count as misses, and a warning says how many.
        """
        y = as_list(y)
        best = self.top_k(X, 1)[1][:, 0]
        check_consistent_length(best, y, sample_weight)
        y, n_unseen = self.targets_.known(y)
        if n_unseen:
            warnings.warn(
                f"{n_unseen:,} labels of y were not seen in training; they count as misses", UserWarning, stacklevel=2
            )
        if self.targets_.kind == "classes":
            right = self.classes_[best] == np.asarray(y)
        else:
            present = self.targets_.to_csr(y)
            right = np.asarray(present[np.arange(len(best)), best]) > 0
        return float(np.average(right, weights=sample_weight))

    def save(self, path: str | Path) -> None:
        """Write one file, which `HolographicClassifier.load`, `holobind.load` and the command line read."""
        check_is_fitted(self, "model_")
        self.model_.metadata["estimator"] = {
            **self.targets_.as_json(),
            "threshold": self.threshold,
            "objective": self.objective,
        }
        self.model_.save(path)

    @classmethod
    def load(cls, path: str | Path, *, encoder: str | Path | None = None) -> "HolographicClassifier":
        """The estimator of a model file, also of one that the command line wrote; `encoder` as in `holobind.load`."""
        model = models.load(path, encoder=encoder)
        targets, options = (model.metadata.get(name, {}) for name in ("estimator", "config"))
        try:
            known = {name: _python_value(value) for name, value in dict(options).items() if name in OPTIONS}
            split_options(known)
            threshold = dict(targets).get("threshold")
            known |= {"text": model.reads_texts, "threshold": threshold and float(threshold)}
            estimator = cls(**known, objective=str(dict(targets).get("objective", "micro-f1")))
            if model.tfidf is not None:
                estimator.vectorizer = model.tfidf.unfitted()
            estimator._adopt(model, Targets.from_json(targets, model.label_names, model.n_labels))
        except (DataError, TypeError, ValueError) as error:
            raise FileError(f"{path} has no valid options of an estimator: {error}") from error
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.text
        tags.input_tags.two_d_array = not self.text
        tags.input_tags.string = bool(self.text)
        tags.classifier_tags.multi_label = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _configs(self) -> tuple[ModelConfig, TrainConfig]:
        return split_options({name: _python_value(getattr(self, name)) for name in OPTIONS})

    def _fit(
        self,
        X: Any,
        y: Any,
        config: ModelConfig,
        train_config: TrainConfig,
        classes: Iterable[Any] | None = None,
        groups: Any = None,
    ) -> Self:
        y = as_list(y)
        targets = Targets.of(y, classes)
        label_texts = None
        if self.label_texts is not None:
            targets, label_texts = with_label_texts(targets, y, as_label_texts(self.label_texts))
        split = self._split(X, targets.to_csr(y), y, reset=True)
        features = None
        if self.vectorizer is not None:
            from holobind.data.vectorizers import SklearnFeatures

            if split.texts is None or config.reads_tokens:
                raise OptionError("vectorizer makes features of texts: give text=True, and network 'linear' or 'fc'")
            features, rows = SklearnFeatures.fit(self.vectorizer, split.texts)
            split, config = replace(split, X=rows), replace(config, text=None)
        elif split.texts is not None and not config.reads_tokens:
            config = replace(config, text=True)
        callbacks = Callbacks(on_solve=_report_solving, on_train=_report_training) if self.verbose else None
        names = targets.label_names
        model = learn(
            split,
            config,
            train_config,
            label_names=names,
            tfidf=features,
            callbacks=callbacks,
            groups=groups,
            label_texts=label_texts,
        )
        self._adopt(model, targets)
        return self

    def _adopt(self, model: models.Model, targets: Targets) -> None:
        self.model_, self.targets_, self.classes_, self.n_updates_ = model, targets, targets.classes, 1
        self._warned, self._all_classes_known = False, False
        if model.tfidf is None and model.network.n_features is not None:
            self.n_features_in_ = model.network.n_features

    def _split(self, X: Any, Y: CsrArray, y: Any, *, reset: bool = False) -> Split:
        """Rows as `learn` takes them."""
        inputs = self._checked(X, reset)
        check_consistent_length(inputs, y)
        if isinstance(inputs, list):
            no_features = from_arrays(np.empty(0, np.float32), np.empty(0), np.zeros(len(inputs) + 1), (len(inputs), 0))
            return Split(no_features, Y, inputs)
        return Split(inputs, Y)

    def _inputs(self, X: Any) -> Examples:
        check_is_fitted(self)
        examples = self.model_.examples(self._checked(X, reset=False))
        n_empty = int(examples.empty_rows().sum())
        if n_empty and not self._warned:
            self._warned = True
            warnings.warn(
                f"{n_empty} of {len(examples)} rows have no word or feature that the model knows: they get no labels, "
                "or the most likely class",
                stacklevel=3,
            )
        return examples

    def _checked(self, X: Any, reset: bool) -> Any:
        """X as a list of texts, or as a matrix of features."""
        wants_texts = self.text if reset else self.text or self.model_.reads_texts
        X = as_list(X)
        texts = None if sparse.issparse(X) else as_texts(X)
        if wants_texts and texts is None:
            reason = "with text=True" if self.text else "for a model of texts"
            raise DataError(f"{reason}, X is a list of texts; got {type(X).__name__}")
        if texts or wants_texts:
            return texts
        if sparse.issparse(X):
            check_ids(X, "X")  # before scikit-learn converts it
        return sparse.csr_array(validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32))

    def _labels_per_row(self) -> int:
        if self.targets_.kind == "classes":
            return 1
        counts, n_rows = self.model_.frequencies
        return int(np.clip(round(counts.sum() / n_rows), 1, self.model_.n_labels))


def _python_value(value: Any) -> Any:
    """Numpy numbers, of which parameter grids are made, as Python's; lists as tuples."""
    if isinstance(value, np.generic):
        return value.item()
    return tuple(_python_value(item) for item in value) if isinstance(value, list | np.ndarray) else value


def _report_solving(stage: str, done: float) -> None:
    if done == 1:
        sys.stderr.write(f"solved: {stage}\n")


def _report_training(state: TrainState, config: TrainConfig) -> None:
    if state.step == 0 and state.history:
        sys.stderr.write(", ".join(f"{name} {value:.5g}" for name, value in state.history[-1].items()) + "\n")
