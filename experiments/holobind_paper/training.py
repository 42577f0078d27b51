"""What the tables of trained networks share: the paper's configuration, training of one cell, means over seeds.

All datasets have the same training options. They were chosen once on rows held out of Bibtex's train split
(experiments/LOG.md): 20 epochs, batches of 64, a learning rate of 0.003. A tenth of the training rows is held out; the
epoch with the best P@1 on them is evaluated on the test split. No run stops early: FC may need ten epochs until it
predicts more than the most frequent label.

The tables share their cells: a network that two tables need is trained once.
"""

import statistics
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holobind import metrics
from holobind.data import Dataset
from holobind.errors import TrainingInterrupted
from holobind.model import Model
from holobind.training import learn
from holobind.training.config import OPTIONS, split_options
from holobind_paper import cells, result
from holobind_paper.datasets import Source, chosen
from holobind_paper.registry import TRAINED_TABLES

Options = dict[str, Any]  # of `ModelConfig` and of `TrainConfig`
Row = dict[str, Any]

TRAIN_OPTIONS: Options = {"epochs": 20, "batch_size": 64, "learning_rate": 3e-3, "patience": 0}
QUICK_EPOCHS = 2
# XML-CNN and the attention LSTM are smaller than by default, to be affordable; sizes from experiments/text_networks.py.
TEXT_OPTIONS: Options = TRAIN_OPTIONS | {"epochs": 6, "batch_size": 128, "hidden": (256,), "max_tokens": 100}
TEXT_NETWORKS: dict[str, Options] = {
    "CNN": {"network": "cnn", "embedding_dim": 64, "filters": 32},
    "LSTM": {"network": "lstm", "embedding_dim": 128, "hidden_size": 96, "feature_dropout": 0.5},
}
MAX_LABELS_OF_SMALL_DATASETS = 10_000  # datasets with more labels have d' = 3000, as in the paper, and one seed
SEEDS = 3
MAX_QUICK_DATASETS = 2
SLOW_DATASETS = ("tibkat-core-en", "python-calls-torch")  # a network takes minutes; left out of quick runs


@dataclass(frozen=True)
class Job:
    """A network to train for a table.

    setup     the name of the network in the table
    compute   how to train and evaluate it; None stands for `train`
    """

    source: Source
    setup: str
    options: Options
    compute: Callable[["Job", Path], Row] | None = None


def fc(**changes: Any) -> Options:
    """The paper's baseline: two hidden layers of 512, one output for each label, binary cross-entropy."""
    return {"network": "fc", "head": "linear", "loss": "bce", **TRAIN_OPTIONS, **changes}


def hrr_fc(dim: int, **changes: Any) -> Options:
    """The paper's network: the same hidden layers, d' outputs, independent unitary label vectors, the query loss."""
    return {"network": "fc", "loss": "query", "codebook": "random", "dim": dim, **TRAIN_OPTIONS, **changes}


def text_pair(network: str, dim: int) -> tuple[Options, Options]:
    """CNN or LSTM with the paper's linear head, and with its holographic head."""
    shape = TEXT_NETWORKS[network] | TEXT_OPTIONS
    return fc(**shape), hrr_fc(dim, **shape)


def paper_dim(n_labels: int) -> int:
    """The paper's d': 400 for its small datasets, 3000 for the large ones."""
    return 3000 if n_labels > MAX_LABELS_OF_SMALL_DATASETS else 400


def pick(
    data: Path | None,
    only: Sequence[str] | None,
    quick: bool,
    among: Sequence[str] = (),
    fallback: str = "python-calls",
) -> list[Source]:
    """The datasets of a table: the available ones that are in `among` (all, if it is empty), or else `fallback`.

    `only` names the datasets and overrides `among`. A quick run uses the first two and leaves out slow ones.
    """
    sources = [source for source in chosen(data, only) if only or not quick or source.name not in SLOW_DATASETS]
    if among and not only:
        listed = [source for source in sources if source.name in among]
        sources = listed or [source for source in sources if source.name == fallback]
    return sources[:MAX_QUICK_DATASETS] if quick else sources


@lru_cache(maxsize=1)
def load(source: Source) -> Dataset:
    return source.load()


def finish(out: Path, table: str, jobs: Sequence[Job], seed: int, quick: bool, seeds: int = SEEDS) -> list[Row]:
    """Train the networks of `jobs` that are not trained yet, with several seeds; return one row for each seed."""
    wanted, setups = [], []
    for job in jobs:
        dataset = load(job.source)
        count = 1 if quick or dataset.n_labels > MAX_LABELS_OF_SMALL_DATASETS else seeds
        fewer = {"epochs": QUICK_EPOCHS} if quick and "epochs" in job.options else {}
        for offset in range(count):
            seeded = replace(job, options=job.options | fewer | {"seed": seed + offset})
            wanted.append(cells.Cell(_key(seeded, dataset), partial(job.compute or train, seeded, out)))
            setups.append(job.setup)
    rows = cells.finish(out, table, wanted, shared_with=TRAINED_TABLES)
    return [row | {"setup": setup} for row, setup in zip(rows, setups, strict=True)]


def train(job: Job, out: Path) -> Row:
    """Train one network and evaluate it on the test split; an interrupted training resumes from its last epoch."""
    dataset = load(job.source)
    identity = zlib.crc32(repr(_key(job, dataset)).encode())
    checkpoint = out / f"unfinished-{identity:08x}.safetensors"
    model_config, train_config = split_options(job.options)
    try:
        model = learn(dataset.train, model_config, train_config, checkpoint=checkpoint, resume=True)
    except TrainingInterrupted:
        result.notify(f"stopped; the next run resumes from {checkpoint}")
        raise KeyboardInterrupt from None
    row = evaluated(model, job.source)
    checkpoint.unlink(missing_ok=True)
    return row


def evaluated(model: Model, source: Source) -> Row:
    """All metrics on the test split, the number of parameters, and the validation curve."""
    dataset = load(source)
    assert dataset.test is not None
    row: Row = {"scores": model.evaluate(dataset.test, dataset=source.name).scores}
    row["parameters"] = model.sizes()["parameters"]
    if training := model.metadata.get("training"):
        history = training["history"]
        row |= {"best_epoch": training["best epoch"], "epochs_run": len(history)}
        row["validation P@1"] = [entry["P@1"] for entry in history if "P@1" in entry]
    return row


def baseline(source: Source, kind: Literal["frequency", "random"], seed: int = 0) -> dict[str, list[float]]:
    """The scores of a ranking that ignores the features: the most frequent labels for all rows, or random labels."""
    dataset = load(source)
    assert dataset.test is not None
    n_rows, n_labels = dataset.test.Y.shape
    k = min(5, n_labels)
    if kind == "frequency":
        counts = np.bincount(dataset.train.Y.indices, minlength=n_labels)
        top = np.tile(np.argsort(-counts, kind="stable")[:k], (n_rows, 1))
    else:
        generator = np.random.default_rng(seed)
        top = np.stack([generator.choice(n_labels, k, replace=False) for _ in range(n_rows)])
    return metrics.evaluate(dataset.test.Y, top, dataset.train.Y, dataset=source.name).scores


BASELINES: dict[str, Literal["frequency", "random"]] = {"label frequency": "frequency", "random ranking": "random"}


def with_baselines(rows: Sequence[Row], sources: Sequence[Source], setups: Sequence[str], seed: int) -> list[Row]:
    """One row for each dataset: the mean scores of all setups and of the two baselines."""
    compared = []
    for source in sources:
        by_setup = {setup: of(rows, source.name, setup) for setup in setups}
        by_setup |= {name: [{"scores": baseline(source, kind, seed)}] for name, kind in BASELINES.items()}
        scores = {name: mean_scores(found) for name, found in by_setup.items()}
        texts = {
            name: {f"{m}@{k}": mean_text(found, f"{m}@{k}") for m, k in TABLE_METRICS}
            for name, found in by_setup.items()
        }
        compared.append({"dataset": source.name, "seeds": len(by_setup[setups[0]]), "scores": scores, "texts": texts})
    return compared


TABLE_METRICS = (("P", 1), ("P", 5), ("PSP", 1), ("PSP", 5))


def table_with_baselines(rows: Sequence[Row]) -> list[list[str]]:
    header = ["dataset", "model", *(f"{m}@{k}" for m, k in TABLE_METRICS), "seeds"]
    lines = [
        [row["dataset"], name, *texts.values(), "" if name in BASELINES else row["seeds"]]
        for row in rows
        for name, texts in row["texts"].items()
    ]
    return result.table(header, lines)


def of(rows: Sequence[Row], dataset: str, setup: str) -> list[Row]:
    """The rows of one dataset and setup, one for each seed."""
    return [row for row in rows if (row["dataset"], row["setup"]) == (dataset, setup)]


def mean(rows: Sequence[Row], metric: str) -> float:
    """The mean over seeds of a metric such as P@1."""
    return statistics.fmean(_values(rows, metric))


def mean_scores(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The means over seeds of all metrics at all k."""
    return {
        metric: [mean(rows, f"{metric}@{k + 1}") for k in range(len(values))]
        for metric, values in rows[0]["scores"].items()
    }


def mean_text(rows: Sequence[Row], metric: str) -> str:
    """The mean over seeds, with the standard deviation if there are several."""
    values = _values(rows, metric)
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def command(name: str, seed: int, quick: bool, data: Path | None, only: Sequence[str] | None) -> str:
    """The command line that computes a table; DIR stands for the user's folder of datasets."""
    line = result.command(name, seed, quick) + " --data DIR" * (data is not None)
    return line + "".join(f" --only {dataset}" for dataset in only or ())


def _values(rows: Sequence[Row], metric: str) -> list[float]:
    name, _, k = metric.partition("@")
    return [row["scores"][name][: int(k)][-1] for row in rows]  # with fewer than k labels, at all of them


def _key(job: Job, dataset: Dataset) -> dict[str, Any]:
    """Everything the result depends on: a checksum of the data, and the options that differ from the defaults."""
    train = dataset.train
    checksum = zlib.crc32(train.Y.indices.tobytes(), zlib.crc32(train.X.data.tobytes()))
    return {
        "dataset": job.source.name,
        "model": _title(job),
        "seed": job.options["seed"],
        "labels": dataset.n_labels,
        "rows": len(train),
        "crc32": f"{checksum:08x}",
        "options": _changed(job.options),
    }


def _changed(options: Mapping[str, Any]) -> Options:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name != "seed" and value != OPTIONS[name].default
    }


def _title(job: Job) -> str:
    """A short name of the network, for readers of the JSONL file and the progress bar."""
    config, _ = split_options(job.options)
    if config.closed_form:
        return "ridge + kNN" if config.uses_knn else "ridge"
    words = [config.network, *(str(size) for size in config.hidden or ()), config.loss or "softmax"]
    if config.head == "holographic":
        words += [config.codebook, str(config.dim), *(f"trainable {name}" for name in config.trainable)]
    if job.compute is not None:
        words.append(job.setup)
    return ", ".join(words)
