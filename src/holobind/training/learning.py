"""From data to a model in one call: the closed form with kNN (the default), the closed form alone, or training.

model = learn(split)                                             the default: seconds
model = learn(split, ModelConfig(network="fc", loss="query"))    the paper's
model = learn(split, ModelConfig(network="cnn"))                 from the tokens of texts, in order
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from holobind import metrics
from holobind._checks import fits_memory
from holobind._storage import encode_lines
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.data import Split, Tfidf
from holobind.data.batches import ExampleRows, Examples, SparseExamples, ragged_labels
from holobind.data.csr import normalise_rows
from holobind.data.holdout import group_ids
from holobind.errors import DataError, OptionError
from holobind.heads import Head, HolographicHead, LinearHead
from holobind.model import Model
from holobind.networks import FC, AttentionLstm, Network, XmlCnn
from holobind.ridge_knn import RidgeKnn, default_dim, fit_ridge_knn, rare_label_weights, solve_ridge, update_ridge_knn
from holobind.training.config import ModelConfig, TrainConfig, join_options

if TYPE_CHECKING:
    from holobind.data.tokenizer import Tokenizer
    from holobind.training.loop import TrainCallback

HIDDEN_SIZES = {"linear": (), "fc": (512, 512), "cnn": (512,), "lstm": (256,)}
MAX_LINEAR_HEAD_BYTES = 1 << 32
BYTES_PER_WEIGHT = 4
SMALLER_SIZES = "take a smaller dim, hidden, embedding_dim, filters or hidden_size"
TEMPERATURES = np.exp(np.linspace(-3, 6, 37))
MIN_TEMPERATURE_ROWS, MAX_TEMPERATURE_ROWS, MAX_TEMPERATURE_SCORES = 16, 500, 1 << 23  # to choose the temperature on


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called as a model is made.

    on_solve   with what the solver does, and the fraction of it that is done
    on_train   with the `TrainState` and the `TrainConfig`, after each step and each epoch
    """

    on_solve: ProgressCallback | None = None
    on_train: "TrainCallback | None" = None


@dataclass(frozen=True)
class _Inputs:
    """Training data as a network takes it: rows of features, or the tokens of texts."""

    split: Split
    X: CsrArray
    tfidf: Tfidf | None
    tokenizer: "Tokenizer | None"
    groups: IntArray | None = None

    @property
    def Y(self) -> CsrArray:  # noqa: N802
        return self.split.Y

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1]) if self.tokenizer is None else self.tokenizer.vocab_size


def learn(
    split: Split,
    config: ModelConfig | None = None,
    train_config: TrainConfig | None = None,
    *,
    label_names: Sequence[str] | None = None,
    tfidf: Tfidf | None = None,
    metadata: dict[str, Any] | None = None,
    callbacks: Callbacks | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    log: Path | None = None,
    quantised: bool = False,
    groups: Any = None,
) -> Model:
    """Make a model from a split of a dataset.

    tfidf      how the features were made from the texts, where they were: the model then reads texts, too
    metadata   JSON values to store with the model
    checkpoint, resume, log   of training, see `loop.fit`
    quantised  whether the closed form without kNN has quantised weights, as with kNN: a smaller file, and calibrated
               probabilities. By default it has float32 weights, as `partial_fit` needs them
    groups     a name or number for each row: what is chosen is chosen on held-out groups, as with scikit-learn's
               GroupShuffleSplit. Give them where rows of one origin resemble each other and new rows have other origins
    """
    began = time.perf_counter()
    config, callbacks = config or ModelConfig(), callbacks or Callbacks()
    train_config = train_config or TrainConfig(seed=config.seed)
    split = split.checked()
    if label_names is not None:
        encode_lines(label_names)  # names that no file can store are refused now, not after the training
    inputs = _read(split, config, tfidf)
    if groups is not None:
        inputs = replace(inputs, groups=group_ids(groups, len(split)))
    if config.uses_knn or (quantised and config.can_use_knn):
        model, summary = _learn_ridge_knn(inputs, config, label_names, callbacks)
    elif config.closed_form:
        model, summary = _learn_ridge(inputs, config, label_names, callbacks)
    else:
        model = _build(inputs, config, label_names)
        summary = _train(model, inputs, config, train_config, callbacks, checkpoint, resume, log)
    timings = {"training": round(time.perf_counter() - began, 2), **summary.pop("timings", {})}
    if "ridge" in summary:
        timings["ridge"] = summary["ridge"].pop("seconds")
    model.metadata = {
        **(metadata or {}),
        "config": join_options(config, train_config),
        "rows": split.Y.shape[0],
        "threads": torch.get_num_threads(),
        **summary,
        "timings": timings,  # in seconds; apart from the rest, which is the same for every run with the same seed
    }
    return model.eval()


def partial_fit(
    model: Model, split: Split, config: ModelConfig, train_config: TrainConfig | None = None, n_updates: int = 1
) -> None:
    """Update a model with more data, in place.

    The closed form of the new rows, with the l2 of the first ones, is averaged with the model's, weighted by numbers of
    rows: then the order of updates does not matter, except through how frequent labels are so far
    (`ModelConfig.rare_label_boost`). Any other model is trained for one pass at a constant learning rate. (Training
    steps with the softmax made solved models worse: experiments/LOG.md.)

    n_updates   how many updates this model has had, with this one: each shuffles the rows differently
    """
    if split.Y.shape[1] != model.n_labels:
        raise DataError(f"this model has {model.n_labels} labels; the data has {split.Y.shape[1]}")
    if not len(split):
        return
    split = split.checked()
    examples = model.examples(model.inputs_of(split))
    now, before = metrics.frequencies(split.Y), model.frequencies
    after = metrics.Frequencies(before.counts + now.counts, before.n_rows + now.n_rows)
    ridge = model.metadata.get("ridge")
    stored_l2 = ridge.get("l2") if isinstance(ridge, dict) else None
    l2 = config.l2 or (float(stored_l2) if isinstance(stored_l2, int | float) else None)  # a file may hold anything
    if isinstance(model.network, RidgeKnn) and isinstance(examples, SparseExamples):
        model.network = update_ridge_knn(model.network, normalise_rows(examples.X), split.Y, l2, before.n_rows)
    elif config.closed_form and "training" not in model.metadata and isinstance(examples, SparseExamples):
        old = [tensor.detach().clone() for tensor in _linear_path(model)]
        _solve_linear_path(model, examples.X, split.Y, replace(config, l2=l2), Callbacks(), after.counts)
        with torch.no_grad():
            for tensor, was in zip(_linear_path(model), old, strict=True):
                tensor.lerp_(was, before.n_rows / after.n_rows)
    else:
        from holobind.training import loop

        if model.head.has_prior:
            model.head.set_prior(_head_counts(after, model.label_order))
        train_config = (train_config or TrainConfig(seed=config.seed)).resolve(len(split), config)
        one_pass = replace(
            train_config, epochs=1, validation_fraction=0.0, patience=0, seed=train_config.seed + n_updates
        )
        loop.fit(model, examples, split.Y, one_pass, constant_rate=True)
    model.frequencies = after


def _read(split: Split, config: ModelConfig, tfidf: Tfidf | None) -> _Inputs:
    """The inputs that a config selects: the data's features, tf-idf features of its texts, or their tokens."""
    X, tokenizer = split.X, None
    if config.reads_tokens:
        tfidf, tokenizer = None, _fit_tokenizer(split, config)
    elif config.text and split.texts is None:
        raise DataError("the data has no texts to make features of; leave out --text")
    elif config.text or (config.text is None and config.uses_knn and (tfidf is None or tfidf.words_only)):
        fitted, features = Tfidf.fit(split.texts or [])
        if config.text or fitted.words:
            tfidf, X = fitted, features
    inputs = _Inputs(split, X, tfidf, tokenizer)
    if 0 in (*split.Y.shape, inputs.n_features):
        n_rows, n_labels = split.Y.shape
        raise DataError(
            f"there is nothing to learn from {n_rows} rows, {inputs.n_features} features, {n_labels} labels"
        )
    return inputs


def _fit_tokenizer(split: Split, config: ModelConfig) -> "Tokenizer":
    from holobind.data.tokenizer import Tokenizer

    if split.texts is None:
        raise DataError(
            f"network {config.network!r} reads texts, and the data has none; give texts (the estimator: text=True), "
            "or take network 'fc'"
        )
    return Tokenizer.train(split.texts, config.tokenizer, config.vocab_size)


# The three ways to make a model


def _learn_ridge_knn(
    inputs: _Inputs, config: ModelConfig, label_names: Sequence[str] | None, callbacks: Callbacks
) -> tuple[Model, dict[str, Any]]:
    """The closed form with the residuals of the nearest training rows, unless `knn_weight` is 0."""
    dim = config.dim
    if dim is None and not config.uses_knn:
        dim = default_dim(int(inputs.Y.shape[1]))
    if dim is not None:
        n_weights = max(inputs.X.shape) * dim  # the outputs of all rows are computed, too
        fits_memory(f"{n_weights:,} weights (dim {dim:,})", BYTES_PER_WEIGHT * n_weights, SMALLER_SIZES)
    fitted = fit_ridge_knn(
        normalise_rows(inputs.X),
        inputs.Y,
        dim=dim,
        l2=config.l2,
        knn_weight=config.knn_weight,
        rare_label_boost=config.rare_label_boost,
        label_trees=config.label_trees,
        seed=config.seed,
        groups=inputs.groups,
        on_progress=callbacks.on_solve,
    )
    network = fitted.network
    head = HolographicHead(None, network.n_labels, network.out_features, network.codebook_name, seed=config.seed)
    model = _assemble(network, head, inputs, config, label_names)
    model.calibration = fitted.calibration
    return model, fitted.summary()


def _learn_ridge(
    inputs: _Inputs, config: ModelConfig, label_names: Sequence[str] | None, callbacks: Callbacks
) -> tuple[Model, dict[str, Any]]:
    """The closed form alone: a linear network set to the ridge regression."""
    model = _build(inputs, config, label_names)
    summary = _solve_linear_path(model, inputs.X, inputs.Y, config, callbacks, model.frequencies.counts, inputs.groups)
    return model, {"ridge": summary}


def _train(
    model: Model,
    inputs: _Inputs,
    config: ModelConfig,
    train_config: TrainConfig,
    callbacks: Callbacks,
    checkpoint: Path | None,
    resume: bool,
    log: Path | None,
) -> dict[str, Any]:
    """Train a network, from the closed form if `config.starts_from_ridge`."""
    from holobind.training import loop  # Fabric takes longer to import than a small closed form to solve

    summary: dict[str, Any] = {}
    train_config = train_config.resolve(len(inputs.split), config)
    if inputs.tokenizer is None:
        examples = model.examples(inputs.X)
    else:
        examples = inputs.tokenizer.encode(inputs.split.texts or [], config.max_tokens, cache=True)
    split_by = len(inputs.split), train_config.validation_fraction, train_config.seed, inputs.groups
    if config.starts_from_ridge:  # a start that has seen the held-out rows would make every later epoch look worse
        kept, held = loop.validation_split(*split_by)
        kept_groups = None if inputs.groups is None else inputs.groups[kept]
        X, Y = inputs.X[kept], inputs.Y[kept]
        summary["ridge"] = _solve_linear_path(model, X, Y, config, callbacks, groups=kept_groups)
        _choose_temperature(model, examples, inputs.Y, held if len(held) else kept)
    state = loop.fit(
        model,
        examples,
        inputs.Y,
        train_config,
        checkpoint=checkpoint,
        resume=resume,
        log=log,
        on_progress=callbacks.on_train,
        warm_start=config.starts_from_ridge,
        options=asdict(config),
        groups=inputs.groups,
    )
    held = loop.validation_split(*split_by)[1]
    if len(held):  # the best epoch was chosen on them, but by one metric only
        model.calibrate(ExampleRows(examples, held), inputs.Y[held])
    summary["training"] = {
        "config": asdict(train_config),
        "history": state.history,
        "best": state.best,
        "best epoch": state.best_epoch + 1,  # 0: the start
    }
    summary["timings"] = {"epochs": state.timings}
    return summary


# Networks and heads


def _build(inputs: _Inputs, config: ModelConfig, label_names: Sequence[str] | None) -> Model:
    """An untrained model: the network and head of a config."""
    n_labels = int(inputs.Y.shape[1])
    dim = n_labels if config.head == "linear" else config.dim or default_dim(n_labels)
    # A linear network, and a linear skip, give the output themselves: the head then has no layer.
    network_gives_output = config.network == "linear" or config.linear_skip
    hidden = HIDDEN_SIZES[config.network] if config.hidden is None else config.hidden
    if config.network == "linear":
        hidden = ()
    if config.head == "linear":
        width = inputs.n_features if network_gives_output else hidden[-1]
        if 4 * n_labels * width > MAX_LINEAR_HEAD_BYTES:
            raise OptionError(
                f"a linear head of {width} x {n_labels} weights would take {4 * n_labels * width / 2**30:.0f} GB; "
                "take head 'holographic'"
            )
    with torch.device("meta"):  # shapes alone
        planned = _network(inputs, replace(config, word_vectors=None), hidden, dim if network_gives_output else None)
    n_weights = planned.n_parameters() + (0 if network_gives_output else planned.out_features * dim)
    fits_memory(f"{n_weights:,} weights (dim {dim:,})", BYTES_PER_WEIGHT * n_weights, SMALLER_SIZES)
    network = _network(inputs, config, hidden, dim if network_gives_output else None)
    in_features = None if network_gives_output else network.out_features
    head: Head
    if config.head == "linear":
        head = LinearHead(in_features, n_labels, "softmax" if config.loss == "softmax" else "bce", config.seed)
    else:
        loss: Any = "softmax" if config.loss in (None, "ridge") else config.loss
        head = HolographicHead(in_features, n_labels, dim, config.codebook, loss, config.seed, config.trainable)
    return _assemble(network, head, inputs, config, label_names)


def _assemble(
    network: Network, head: Head, inputs: _Inputs, config: ModelConfig, label_names: Sequence[str] | None
) -> Model:
    frequencies = metrics.frequencies(inputs.Y)
    order = None
    if head.orders_labels and not config.closed_form:
        # The most frequent labels first: rolls of one orbit base are orthogonal. That is worth a point of P@1 to the
        # query loss on delicious (experiments/LOG.md); the closed form does not gain by it.
        order = np.argsort(-frequencies.counts, kind="stable").astype(np.int64)
    if head.weight is not None:
        head.set_prior(_head_counts(frequencies, order))
    return Model(
        network,
        head,
        frequencies,
        normalise=config.normalise,
        tfidf=inputs.tfidf,
        tokenizer=inputs.tokenizer,
        max_tokens=config.max_tokens,
        label_names=label_names,
        label_order=order,
    )


def _network(inputs: _Inputs, config: ModelConfig, hidden: Sequence[int], out_features: int | None) -> Network:
    """The untrained network of a config; `out_features` if it gives the output itself."""
    if inputs.tokenizer is not None:
        return _text_network(config, inputs.tokenizer, hidden)
    return FC(
        inputs.n_features,
        hidden,
        out_features,
        linear_skip=config.linear_skip,
        dropout=config.dropout or 0.0,
        feature_dropout=config.feature_dropout or 0.0,
        seed=config.seed,
    )


def _text_network(config: ModelConfig, tokenizer: "Tokenizer", hidden: Sequence[int]) -> Network:
    options: dict[str, Any] = {"seed": config.seed, "embedding_dim": config.embedding_dim}
    if config.word_vectors is not None:
        from holobind.data.tokenizer import load_word_vectors

        options["vectors"] = load_word_vectors(config.word_vectors, tokenizer, config.embedding_dim, config.seed)
        options["embedding_dim"] = options["vectors"].shape[1]
    options |= {"dropout": config.dropout, "embedding_dropout": config.feature_dropout}
    options = {name: value for name, value in options.items() if value is not None}
    if config.network == "cnn":
        return XmlCnn(tokenizer.vocab_size, filters=config.filters, bottleneck=hidden[0], **options)
    return AttentionLstm(tokenizer.vocab_size, hidden_size=config.hidden_size, layers=hidden, **options)


def _head_counts(frequencies: metrics.Frequencies, label_order: IntArray | None) -> Tensor:
    """How often each label occurs, in the head's order of labels.  Shapes: -> (L)"""
    return torch.from_numpy(frequencies.counts if label_order is None else frequencies.counts[label_order])


# The closed form in a linear path


def _linear_path(model: Model) -> tuple[Tensor, Tensor]:
    path = model.network.linear_path()
    assert path is not None
    return path


def _solve_linear_path(
    model: Model,
    X: CsrArray,
    Y: CsrArray,
    config: ModelConfig,
    callbacks: Callbacks,
    counts: IntArray | None = None,
    groups: IntArray | None = None,
) -> dict[str, Any]:
    """Set x W + b of a model to the closed form, and return the solver's summary.

    counts   of labels, by which rare ones are boosted; None where training continues from here
    """
    head = model.head
    label_weights = None
    if counts is not None and head.boosts_rare_labels:
        label_weights = rare_label_weights(counts, config.rare_label_boost)
    solution = solve_ridge(
        normalise_rows(X) if config.normalise else X,
        model.to_head_labels(Y),
        head.ridge_codebook(),
        config.l2,
        label_weights=label_weights,
        seed=config.seed,
        groups=groups,
        on_progress=callbacks.on_solve,
    )
    with torch.no_grad():
        for tensor, solved in zip(_linear_path(model), head.from_ridge(solution.weights, solution.bias), strict=True):
            tensor.copy_(solved)
    return solution.summary()


def _choose_temperature(model: Model, examples: Examples, Y: CsrArray, rows: RowIndex) -> None:
    """Choose the softmax temperature of a solved model that fits held-out rows best.

    Scores of the closed form are about 0 to 1: over thousands of labels their softmax is almost uniform, and training
    would first enlarge the weights and forget the solution.
    """
    head = model.head
    if head.loss_name != "softmax":
        return
    n_rows = int(np.clip(MAX_TEMPERATURE_SCORES // model.n_labels, MIN_TEMPERATURE_ROWS, MAX_TEMPERATURE_ROWS))
    rows = rows[:n_rows]
    with torch.no_grad():
        head.set_temperature(1.0)
        h = model.network(examples.batch(rows))
        labels, offsets = ragged_labels(Y, rows)
        head_labels = model.head_label_ids(labels)
        best = min(TEMPERATURES, key=lambda t: float(head.loss(t * h, head_labels, offsets)))
        if not head.set_temperature(float(best)):
            for tensor in _linear_path(model):
                tensor.mul_(best)
