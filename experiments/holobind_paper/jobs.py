"""The networks to train: their options, the key that identifies a finished one, and the time it takes.

All datasets have the same training options. Those of FC and HRR-FC were chosen once on rows held out of Bibtex's train
split: 20 epochs, batches of 64, a learning rate of 0.003. Those of CNN and LSTM were chosen on rows held out of the
train splits of cooking-stackexchange and python-calls-torch (experiments/LOG.md). Both heads have the same ones. A
tenth of the training rows is held out; the epoch with the best P@1 on them is evaluated on the test split.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holobind.data import Dataset
from holobind.training.config import OPTIONS, ModelConfig, TrainConfig, split_options
from holobind_paper.datasets import Source

Options = dict[str, Any]  # of `ModelConfig` and of `TrainConfig`
Row = dict[str, Any]

TRAIN_OPTIONS: Options = {"epochs": 20, "batch_size": 64, "learning_rate": 3e-3, "patience": 0}
SHORT_OPTIONS: Options = TRAIN_OPTIONS | {"epochs": 8}  # of ablations with many cells
LARGE_OPTIONS: Options = TRAIN_OPTIONS | {"epochs": 5, "batch_size": 256}  # of datasets with many labels
# Chosen on rows held out of its train split (experiments/LOG.md): 1,500 rows of 120 dense features.
OPTIONS_OF_DATASETS: dict[str, Options] = {"mediamill-reduced": {"epochs": 60, "normalise": False}}
QUICK_EPOCHS = 2
# The paper's hidden layers, whatever holobind's default is. They are not part of a cell's key: cells without a `hidden`
# have these, now and when they were computed.
PAPER_HIDDEN = (512, 512)
# XML-CNN and the attention LSTM are smaller than by default, to be affordable; sizes from experiments/text_networks.py.
TEXT_OPTIONS: Options = TRAIN_OPTIONS | {
    **{"epochs": 10, "batch_size": 128, "hidden": (256,), "max_tokens": 100},
    **{"dropout": 0.2, "feature_dropout": 0.2},
}
TEXT_NETWORKS: dict[str, Options] = {
    "CNN": {"network": "cnn", "embedding_dim": 64, "filters": 32},
    "LSTM": {"network": "lstm", "embedding_dim": 128, "hidden_size": 96},
}
# Binary cross-entropy is a mean over labels. With many of them its gradients come near Adam's epsilon of 1e-8, and LSTM
# on tibkat-core-en stays at label frequency; CNN does not, and is worse with a smaller one (experiments/LOG.md).
LINEAR_OPTIONS_OF_MANY_LABELS: dict[str, Options] = {"LSTM": {"adam_epsilon": 1e-15}}
MAX_LABELS_OF_SMALL_DATASETS = 10_000  # datasets with more labels have d' = 3000, as in the paper, and one seed
SEEDS = 3

# The version of each code path that a cell's result depends on. A change that changes results raises its number, and
# the cells of that path are computed again; a path that is not listed has version 1.
CODE_VERSIONS = {
    "linear head": 2,  # 2: the bias starts at the label frequencies
    "query-abs": 2,  # 2: labels are ranked by |score|, label vectors are not normalised in the loss
    "trainable labels": 2,  # 2: a learning rate of their own
    "ridge + kNN": 3,  # 3: four label trees
    "ridge": 2,
}


@dataclass(frozen=True)
class Job:
    """A network to train for a table, with several seeds.

    setup     the name of the network in the table
    variant   what `compute` does differently from training with these options; part of the key
    compute   how to train and evaluate it; None stands for `training.train`
    needs     fields that the table wants in the result; a finished cell without them is computed again
    seeds     how many seeds on a small dataset; a large one has one
    """

    source: Source
    setup: str
    options: Options
    variant: Mapping[str, Any] = field(default_factory=dict)
    compute: Callable[["Job", Path], Row] | None = None
    needs: tuple[str, ...] = ()
    seeds: int = SEEDS

    def n_seeds(self, quick: bool) -> int:
        return 1 if quick or self.source.labels > MAX_LABELS_OF_SMALL_DATASETS else self.seeds


def fc(**changes: Any) -> Options:
    """The paper's baseline: two hidden layers of 512, one output for each label, binary cross-entropy."""
    return {"network": "fc", "head": "linear", "loss": "bce", **TRAIN_OPTIONS, **changes}


def hrr_fc(dim: int, **changes: Any) -> Options:
    """The paper's network: the same hidden layers, d' outputs, independent unitary label vectors, the query loss."""
    return {"network": "fc", "loss": "query", "codebook": "random", "dim": dim, **TRAIN_OPTIONS, **changes}


def text_pair(network: str, n_labels: int) -> tuple[Options, Options]:
    """CNN or LSTM with the paper's linear head, and with its holographic head."""
    shape = TEXT_NETWORKS[network] | TEXT_OPTIONS
    many = n_labels > MAX_LABELS_OF_SMALL_DATASETS
    changes = LINEAR_OPTIONS_OF_MANY_LABELS.get(network, {}) if many else {}
    return fc(**shape, **changes), hrr_fc(paper_dim(n_labels), **shape)


def paper_dim(n_labels: int) -> int:
    """The paper's d': 400 for its small datasets, 3000 for the large ones."""
    return 3000 if n_labels > MAX_LABELS_OF_SMALL_DATASETS else 400


def configs(options: Mapping[str, Any]) -> tuple[ModelConfig, TrainConfig]:
    """The configs of a job's options, with the paper's hidden layers where they name none."""
    paper = {"hidden": PAPER_HIDDEN} if options.get("network") == "fc" else {}
    return split_options(paper | dict(options))


def key(job: Job, seed: int) -> dict[str, Any]:
    """What identifies a finished cell, whichever copy of the data it was trained on."""
    found = {"dataset": job.source.name, "model": title(job), "seed": seed, "options": _changed(job.options)}
    if job.variant:
        found["variant"] = dict(job.variant)
    if code := code_versions(job):
        found["code"] = code
    return found


def data_key(dataset: Dataset) -> dict[str, Any]:
    """The sizes of a dataset and a checksum of its train split: the rest of a cell's key."""
    train = dataset.train
    checksum = zlib.crc32(train.Y.indices.tobytes(), zlib.crc32(train.X.data.tobytes()))
    return {"labels": dataset.n_labels, "rows": len(train), "crc32": f"{checksum:08x}"}


def code_versions(job: Job) -> dict[str, int]:
    """The versions of the code paths that a job uses, where they are not 1."""
    config, _ = split_options(job.options)
    paths = [title(job)] if config.closed_form and not job.variant.get("ranking") else []
    paths += [config.loss or "softmax", f"{config.head} head"] if config.network != "linear" else []
    paths += [f"trainable {name}" for name in config.trainable]
    return {path: CODE_VERSIONS[path] for path in paths if path in CODE_VERSIONS}


def title(job: Job) -> str:
    """A short name of the network, for readers of the JSONL file and the progress bar."""
    if "ranking" in job.variant:
        return f"ranking by {job.variant['ranking']}"
    config, _ = split_options(job.options)
    if config.closed_form:
        return "ridge + kNN" if config.uses_knn else "ridge"
    words = [config.network, *(str(size) for size in config.hidden or ()), config.loss or "softmax"]
    if config.head == "holographic":
        words += [config.codebook, str(config.dim), *(f"trainable {name}" for name in config.trainable)]
    words += [f"{name} {value}" for name, value in job.variant.items()]
    return ", ".join(words)


def _changed(options: Mapping[str, Any]) -> Options:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name != "seed" and value != OPTIONS[name].default
    }


# Seconds of a row in an epoch, on two cores: fitted by eye to the cells of version 0.1, good to a factor of two.
SECONDS_OF_A_ROW = 1.5e-4
SECONDS_OF_AN_OUTPUT_WEIGHT = 6e-11
SECONDS_OF_A_LABEL_ELEMENT = 1e-7  # drawing label vectors, d' elements for each present label
SECONDS_OF_A_WORD = {"cnn": 1.2e-5, "lstm": 3e-5}
SECONDS_OF_A_SOFTMAX_LABEL = 4e-8
CLOSED_FORM_SECONDS = 20


def estimate(job: Job) -> float:
    """About how many seconds one seed takes on two idle cores."""
    if "ranking" in job.variant:
        return 1.0
    config, train = split_options(job.options)
    source = job.source
    if config.closed_form:
        return CLOSED_FORM_SECONDS + source.rows * 1e-3
    outputs = source.labels if config.head == "linear" else config.dim or source.labels
    hidden = tuple(config.hidden or PAPER_HIDDEN)
    weights = sum(a * b for a, b in zip(hidden, (*hidden[1:], outputs), strict=True))
    row = SECONDS_OF_A_ROW + weights * SECONDS_OF_AN_OUTPUT_WEIGHT
    if config.reads_tokens:
        row += min(source.words, config.max_tokens) * SECONDS_OF_A_WORD[config.network]
    if config.head == "holographic" and (config.codebook != "orbit" or config.trainable):
        row += outputs * SECONDS_OF_A_LABEL_ELEMENT
    if config.head == "holographic" and config.loss in (None, "softmax"):
        row += source.labels * SECONDS_OF_A_SOFTMAX_LABEL * (10 if config.codebook == "random" else 1)
    if "labels" in config.trainable:
        row += source.labels * outputs * 4e-9 / (train.batch_size or 64)
    return 5 + row * source.rows * (train.epochs or 10)
