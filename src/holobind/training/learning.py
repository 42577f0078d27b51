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
from holobind._processes import join
from holobind._storage import encode_lines
from holobind._threads import torch_on_one_thread
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.data import Split, Tfidf
from holobind.data.batches import ExampleRows, Examples, SparseExamples, TextExamples, ragged_labels
from holobind.data.csr import binary_labels, is_mapped, label_id_sets, normalise_rows, normalise_rows_in_file
from holobind.data.holdout import MAX_HELD_OUT_ROWS, group_ids
from holobind.data.sentence_encoder import SentenceEncoder
from holobind.errors import DataError, OptionError
from holobind.heads import HolographicHead
from holobind.model import Model
from holobind.ridge_knn import (
    DEFAULT_MEMORY,
    RidgeKnn,
    default_dim,
    default_knn_dim,
    feature_rows,
    fit_ridge_knn,
    rare_label_weights,
    solve_ridge,
)
from holobind.ridge_knn.fit_checkpoint import NO_CHECKPOINT, FitCheckpoint
from holobind.training import checkpoint as checkpoints
from holobind.training.building import (
    BYTES_PER_WEIGHT,
    SMALLER_SIZES,
    Inputs,
    assemble,
    build,
    head_counts,
    read_inputs,
)
from holobind.training.config import ModelConfig, TrainConfig, join_options
from holobind.training.label_text_fit import fit_label_text
from holobind.training.memory import plan_memory
from holobind.training.solved_path import Extras, freeze_linear_path, solved_path

if TYPE_CHECKING:
    from holobind.data.vectorizers import SklearnFeatures
    from holobind.training.loop import TrainCallback

# Entries of X, weights and held-out scores up to which torch works on one thread: a second one would mostly wait
MAX_ONE_THREAD_ELEMENTS = 1 << 22
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


def learn(
    split: Split,
    config: ModelConfig | None = None,
    train_config: TrainConfig | None = None,
    *,
    label_names: Sequence[str] | None = None,
    tfidf: "Tfidf | SklearnFeatures | None" = None,
    metadata: dict[str, Any] | None = None,
    callbacks: Callbacks | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    log: Path | None = None,
    quantised: bool = False,
    max_uncompressed: int | None = None,
    groups: Any = None,
    label_texts: Sequence[Sequence[str]] | None = None,
) -> Model:
    """Make a model from a split of a dataset.

    tfidf      how the features were made from the texts, where they were: the model then reads texts, too
    metadata   JSON values to store with the model
    checkpoint, resume, log   of training, see `loop.fit`; the checkpoint of the closed form is a folder, to which
               results are written after a minute
    quantised  whether the closed form without kNN has quantised weights, as with kNN: a smaller file, and calibrated
               probabilities. By default it has float32 weights
    max_uncompressed   bytes to which a compressed file of word vectors may expand, see `data.load`
    groups     a name or number for each row: what is chosen is chosen on held-out groups, as with scikit-learn's
               GroupShuffleSplit. Give them where rows of one origin resemble each other and new rows have other origins
    label_texts   the texts of each label, its name first (`data.label_texts`): labels with few or no rows are suggested
               by them. Of the closed form with kNN, on texts
    """
    began = time.perf_counter()
    config, callbacks = config or ModelConfig(), callbacks or Callbacks()
    train_config = train_config or TrainConfig(seed=config.seed)
    split = split.checked()
    if label_names is not None:
        encode_lines(label_names)  # names that no file can store are refused now, not after the training
    if label_texts is not None:
        _check_label_texts(label_texts, split, config)
    inputs = read_inputs(split, config, tfidf, callbacks.on_solve, max_uncompressed)
    if groups is not None:
        inputs = replace(inputs, groups=group_ids(groups, len(split)))
    wants_network = quantised or config.uses_knn or config.label_trees or config.update or label_texts is not None
    stored = NO_CHECKPOINT
    if config.closed_form:
        stored = _fit_checkpoint(checkpoint, resume, inputs, config, train_config)
    if config.can_use_knn and wants_network:
        model, summary = _learn_ridge_knn(
            inputs, config, label_names, callbacks, train_config.memory_bytes, stored, label_texts
        )
    elif config.closed_form:
        model, summary = _learn_ridge(inputs, config, label_names, callbacks, stored)
    else:
        if train_config.shard_features:
            join()
        model = build(inputs, config, label_names, train_config)
        summary = _train(model, inputs, config, train_config, callbacks, checkpoint, resume, log)
    timings = {"training": round(time.perf_counter() - began, 2), **summary.pop("timings", {})}
    if "ridge" in summary:
        timings["ridge"] = summary["ridge"].pop("seconds")
    model.metadata = {
        **(metadata or {}),
        "config": join_options(config, train_config),
        "rows": split.Y.shape[0],
        "threads": torch.get_num_threads(),
        **inputs.summary,
        **summary,
        "timings": timings,  # in seconds; apart from the rest, which is the same for every run with the same seed
    }
    return model.eval()


def partial_fit(
    model: Model,
    split: Split,
    config: ModelConfig,
    train_config: TrainConfig | None = None,
    n_updates: int = 1,
    label_names: Sequence[str] | None = None,
) -> Model:
    """The model after more data. The default model is a new one (`Model.update`); any other is changed in place.

    In the closed form without kNN, the solution for the new rows, with the l2 of the first ones, is averaged with the
    model's, weighted by numbers of rows: then the order of updates does not matter, except through how frequent labels
    are so far (`ModelConfig.rare_label_boost`). Any other model is trained for one pass at a constant learning rate.
    (Training steps with the softmax made solved models worse: experiments/LOG.md.)

    n_updates     how many updates this model has had, with this one: each shuffles the rows differently
    label_names   of the split, if it has labels after those of the model: the default model then gets these, too
    """
    grows = model.can_learn_on and label_names is not None and len(label_names) == split.Y.shape[1]
    if split.Y.shape[1] != model.n_labels and not grows:
        raise DataError(f"this model has {model.n_labels} labels; the data has {split.Y.shape[1]}")
    if not len(split):
        return model
    split = split.checked()
    if isinstance(model.network, RidgeKnn):
        sets = label_id_sets(split.Y)
        names = label_names if grows and model.label_names is not None else None
        return model.update(
            model.inputs_of(split), sets if names is None else [[names[i] for i in ids] for ids in sets]
        )
    examples = model.examples(model.inputs_of(split))
    now, before = metrics.frequencies(split.Y), model.frequencies
    after = metrics.Frequencies(before.counts + now.counts, before.n_rows + now.n_rows)
    ridge = model.metadata.get("ridge")
    stored_l2 = ridge.get("l2") if isinstance(ridge, dict) else None
    l2 = config.l2 or (float(stored_l2) if isinstance(stored_l2, int | float) else None)  # a file may hold anything
    if config.closed_form and "training" not in model.metadata and isinstance(examples, SparseExamples):
        old = [tensor.detach().clone() for tensor in _linear_path(model)]
        _solve_linear_path(model, examples.X, split.Y, replace(config, l2=l2), Callbacks(), after.counts)
        with torch.no_grad():
            for tensor, was in zip(_linear_path(model), old, strict=True):
                tensor.lerp_(was, before.n_rows / after.n_rows)
    else:
        from holobind.training import loop

        if model.head.has_prior:
            model.head.set_prior(head_counts(after, model.label_order), after.n_rows)
        train_config = (train_config or TrainConfig(seed=config.seed)).resolve(len(split), config)
        one_pass = replace(
            train_config, epochs=1, validation_fraction=0.0, patience=0, seed=train_config.seed + n_updates
        )
        loop.fit(model, examples, split.Y, one_pass, constant_rate=True)
        if model.extra_scores is not None:
            rows = feature_rows(examples, np.arange(len(split)), model.extra_scores.n_features)
            model.extra_scores = model.extra_scores.with_rows(normalise_rows(rows), binary_labels(split.Y))
    model.frequencies = after
    return model


# The three ways to make a model


def _learn_ridge_knn(
    inputs: Inputs,
    config: ModelConfig,
    label_names: Sequence[str] | None,
    callbacks: Callbacks,
    memory: int | None,
    checkpoint: FitCheckpoint,
    label_texts: Sequence[Sequence[str]] | None = None,
) -> tuple[Model, dict[str, Any]]:
    """The closed form with the residuals of the nearest training rows, unless `knn_weight` is 0.

    Processes that torchrun started solve it together.
    """
    dim = config.dim or (default_knn_dim if config.uses_knn else default_dim)(int(inputs.Y.shape[1]))
    n_weights = (inputs.X.shape[1] if config.dim is None else max(inputs.X.shape)) * dim  # outputs of rows are as large
    fits_memory(f"{n_weights:,} weights (dim {dim:,})", BYTES_PER_WEIGHT * n_weights, SMALLER_SIZES)
    tables, notes = DEFAULT_MEMORY, []
    if memory is not None:
        plan = plan_memory(memory, inputs.X, dim, config)
        tables, config, notes = plan.tables, replace(plan.config, update=bool(plan.config.update)), plan.notes
    elements = max(int(inputs.X.indptr[-1]), n_weights, MAX_HELD_OUT_ROWS * int(inputs.Y.shape[1]))
    with torch_on_one_thread(elements <= MAX_ONE_THREAD_ELEMENTS):
        fitted = fit_ridge_knn(
            normalise_rows_in_file(inputs.X) if is_mapped(inputs.X) else normalise_rows(inputs.X),
            inputs.Y,
            dim=dim,
            l2=config.l2,
            knn_weight=config.knn_weight,
            rare_label_boost=config.rare_label_boost,
            label_trees=config.label_trees,
            update=config.update,
            seed=config.seed,
            groups=inputs.groups,
            memory=tables,
            processes=checkpoint.processes,
            checkpoint=checkpoint,
            on_progress=callbacks.on_solve,
        )
    network = fitted.network
    head = HolographicHead(None, network.n_labels, network.out_features, network.codebook_name, seed=config.seed)
    model = assemble(network, head, inputs, config, label_names)
    model.calibration = fitted.calibration
    if memory is not None and (costs := fitted.solution.plan):
        notes.append(
            f"the ridge regression ({fitted.solution.system}): estimated seconds of one processor "
            f"{costs['rows']:.3g} with passes over the rows, {costs['gram']:.3g} with the Gram matrix"
        )
    summary = fitted.summary() | ({"memory notes": notes} if notes else {})
    if label_texts is not None:
        found = fit_label_text(
            label_texts,
            inputs.split.texts or [],
            model.frequencies.counts,
            network.codebook(),
            model.suggest,
            fitted.held_out,
            None if config.encoder is None else SentenceEncoder.open(config.encoder),
            seed=config.seed,
            on_progress=callbacks.on_solve,
        )
        model.label_text, model.calibration = found.label_text, found.calibration or model.calibration
        summary["label_text"] = found.summary
    return model, summary


def _fit_checkpoint(
    folder: Path | None, resume: bool, inputs: Inputs, config: ModelConfig, train_config: TrainConfig
) -> FitCheckpoint:
    """The checkpoint of the closed form, of all processes; without a folder it stores nothing."""
    processes = join()

    def run() -> dict[str, Any]:
        X, Y, groups = inputs.X, inputs.Y, inputs.groups
        return {
            "options": asdict(config),
            "memory": train_config.memory_bytes,
            "processes": processes.size,
            "examples": checkpoints.csr_fingerprint(X.shape, X.indptr, X.indices, X.data),
            "labels": checkpoints.csr_fingerprint(Y.shape, Y.indptr, Y.indices),
            "groups": None if groups is None else checkpoints.checksum(groups),
        }

    return FitCheckpoint(folder, run, processes, resume=resume)


def _check_label_texts(label_texts: Sequence[Sequence[str]], split: Split, config: ModelConfig) -> None:
    if split.texts is None or config.text is False:
        raise DataError(
            "label texts are compared with the texts of rows, and this model would read features only; "
            "give data with texts, or leave out the label texts"
        )
    if not config.can_use_knn:
        raise OptionError(
            "label texts belong to the closed form with a holographic head, the orbit codebook, no trainable vectors "
            f"and normalised rows; got network {config.network!r}, loss {config.loss!r} and head {config.head!r}"
        )
    if len(label_texts) != split.Y.shape[1]:
        raise DataError(f"there are texts of {len(label_texts)} labels, and the data has {split.Y.shape[1]} labels")


def _learn_ridge(
    inputs: Inputs,
    config: ModelConfig,
    label_names: Sequence[str] | None,
    callbacks: Callbacks,
    checkpoint: FitCheckpoint,
) -> tuple[Model, dict[str, Any]]:
    """The closed form alone: a linear network set to the ridge regression, by every process."""
    model = build(inputs, config, label_names)
    counts = model.frequencies.counts
    summary = _solve_linear_path(model, inputs.X, inputs.Y, config, callbacks, counts, inputs.groups, checkpoint)
    checkpoint.processes.any(False)  # the first process removes the checkpoint: all have written by now
    return model, {"ridge": summary}


def _train(
    model: Model,
    inputs: Inputs,
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
    examples = _training_examples(model, inputs, config)
    split_by = len(inputs.split), train_config.validation_fraction, train_config.seed, inputs.groups
    kept, held = loop.validation_split(*split_by)
    path = None
    if config.starts_from_ridge and config.head_loss == "squares" and config.head == "holographic":
        path = solved_path(model, inputs.X, inputs.Y, config, callbacks.on_solve)
        summary["ridge"] = path.solve(kept, held, inputs.groups)
        freeze_linear_path(model, True)
    elif config.starts_from_ridge:  # a start that has seen the held-out rows would make every later epoch look worse
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
    freeze_linear_path(model, False)
    extras = Extras(model, examples, inputs.Y, config, callbacks.on_solve, path)
    if config.can_add_scores:
        summary |= extras.choose(kept, held)
    if len(held):  # the best epoch was chosen on them, but by one metric only
        model.calibrate(ExampleRows(examples, held), inputs.Y[held])
    if path is not None:
        path.refit()
    extras.refit()
    summary["training"] = {
        "config": asdict(train_config),
        "history": state.history,
        "best": state.best,
        "best epoch": state.best_epoch + 1,  # 0: the start
    }
    summary["timings"] = {"epochs": state.timings}
    return summary


def _training_examples(model: Model, inputs: Inputs, config: ModelConfig) -> Examples:
    """Rows of features, tokens, or both, as the network takes them."""
    if inputs.tokenizer is None:
        return model.examples(inputs.X)
    tokens = inputs.tokenizer.encode(inputs.split.texts or [], config.max_tokens, cache=True)
    return tokens if inputs.tfidf is None else TextExamples(SparseExamples(inputs.X, config.normalise), tokens)


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
    checkpoint: FitCheckpoint = NO_CHECKPOINT,
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
        checkpoint=checkpoint,
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
