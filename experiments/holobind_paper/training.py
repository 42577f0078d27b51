"""What the tables of trained networks share: the paper's set-up, cells that train one network, means over seeds.

One set-up for every dataset, chosen once on rows held out of Bibtex's training part (experiments/LOG.md): 20 epochs,
batches of 64, a learning rate of 0.003. A tenth of the training rows is held out; the epoch with the best P@1 on them
is measured on the test part. No run ends before its last epoch: FC may need ten until it finds more than the most
frequent label.

Cells of all tables are kept in one place, OUT/cells/trained: a network that two tables ask for is trained once.
"""

import statistics
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holobind import metrics
from holobind.data import Dataset
from holobind.errors import Stopped
from holobind.training.config import ModelConfig
from holobind.training.learning import HIDDEN, Callbacks, learn
from holobind_paper import cells, result
from holobind_paper.datasets import Source, chosen

PLAN: dict[str, Any] = {"epochs": 20, "batch_size": 64, "learning_rate": 3e-3, "patience": 0}
QUICK_PLAN: dict[str, Any] = PLAN | {"epochs": 2}
# Smaller than XML-CNN and the attention LSTM as they come, to be affordable; sizes from experiments/text_networks.py.
TEXT_PLAN: dict[str, Any] = PLAN | {"epochs": 6, "batch_size": 128, "hidden": (256,), "max_tokens": 100}
TEXT_NETWORKS: dict[str, dict[str, Any]] = {
    "CNN": {"network": "cnn", "embedding_dim": 64, "filters": 32},
    "LSTM": {"network": "lstm", "embedding_dim": 128, "hidden_size": 96, "feature_dropout": 0.5},
}
LARGE = 10_000  # labels beyond which d' is 3000, as in the paper, and one seed must do
SEEDS = 3
QUICK_DATASETS, SLOW = 2, ("tibkat-core-en", "python-calls-torch")

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A row of a table before it is trained: `setup` is what the table calls it."""

    source: Source
    setup: str
    config: ModelConfig
    compute: Callable[["Job", Path], Numbers] | None = None  # how, if not by `learn`


def fc(**changes: Any) -> ModelConfig:
    """The paper's baseline: two hidden layers of 512, an output for each label, binary cross-entropy."""
    return ModelConfig(**{"network": "fc", "head": "linear", "loss": "bce", **PLAN, **changes})


def hrr_fc(dim: int, **changes: Any) -> ModelConfig:
    """The paper's network: the same hidden layers, d' outputs, independent unitary label vectors, the query loss."""
    return ModelConfig(**{"network": "fc", "loss": "query", "codebook": "random", "dim": dim, **PLAN, **changes})


def text_pair(network: str, dim: int) -> tuple[ModelConfig, ModelConfig]:
    """CNN or LSTM as the paper's baseline, and with its holographic head."""
    shape = TEXT_NETWORKS[network] | TEXT_PLAN
    return fc(**shape), hrr_fc(dim, **shape)


def paper_dim(labels: int) -> int:
    """d' as the paper has it: 400 for its small datasets, 3000 for the large ones."""
    return 3000 if labels > LARGE else 400


def pick(
    data: Path | None,
    only: Sequence[str] | None,
    quick: bool,
    among: Sequence[str] = (),
    fallback: str = "python-calls",
) -> list[Source]:
    """The datasets of a table: those of `among` that there are (all, if it is empty), or else `fallback`.

    `only` names the ones wanted, whatever `among` says; a quick run takes the first two, and none that takes minutes.
    """
    found = [source for source in chosen(data, only) if only or not quick or source.name not in SLOW]
    if among and not only:
        listed = [source for source in found if source.name in among]
        found = listed or [source for source in found if source.name == fallback]
    return found[:QUICK_DATASETS] if quick else found


@lru_cache(maxsize=1)
def load(source: Source) -> Dataset:
    return source.load()


def finish(out: Path, jobs: Sequence[Job], seed: int, quick: bool, seeds: int = SEEDS) -> list[Numbers]:
    """Train what is not trained yet, each job with several seeds; a row for each, with its `setup`."""
    wanted, setups = [], []
    for job in jobs:
        dataset = load(job.source)
        count = 1 if quick or dataset.n_labels > LARGE else seeds
        config = replace(job.config, epochs=QUICK_PLAN["epochs"]) if quick and job.config.epochs else job.config
        for offset in range(count):
            one = replace(job, config=replace(config, seed=seed + offset))
            wanted.append(cells.Cell(_key(one, dataset), partial(job.compute or train, one, out)))
            setups.append(job.setup)
    rows = cells.finish(out, "trained", wanted)
    return [row | {"setup": setup} for row, setup in zip(rows, setups, strict=True)]


def train(job: Job, out: Path) -> Numbers:
    """Train one network and measure it on the test part; stopped within, it goes on from its last epoch later."""
    dataset = load(job.source)
    about = _key(job, dataset)
    checkpoint = out / "cells" / "trained" / f"unfinished-{zlib.crc32(repr(about).encode()):08x}.safetensors"
    try:
        model = learn(dataset.train, job.config, watch=Callbacks(checkpoint=checkpoint, resume=True))
    except Stopped:
        result.say(f"stopped; {checkpoint} is where to go on from")
        raise KeyboardInterrupt from None
    numbers = measured(model, job.source)
    checkpoint.unlink(missing_ok=True)
    return numbers


def plan_of(config: ModelConfig) -> dict[str, Any]:
    """What of a config is the plan of its training."""
    return {
        name: getattr(config, name)
        for name in ("epochs", "batch_size", "learning_rate", "patience", "validation", "seed")
    }


def measured(model: Any, source: Source) -> Numbers:
    """All measures on the test part, and how training went."""
    dataset = load(source)
    assert dataset.test is not None
    found: Numbers = {"scores": model.evaluate(dataset.test, dataset=source.name).scores}
    found["parameters"] = model.sizes()["parameters"]
    if told := model.metadata.get("training"):
        history = told["history"]
        found |= {"best_epoch": told["best epoch"], "epochs_run": len(history)}
        found["validation"] = [entry["P@1"] for entry in history if "P@1" in entry]
    return found


def baseline(source: Source, kind: Literal["frequency", "random"], seed: int = 0) -> dict[str, list[float]]:
    """The scores of a ranking that looks at no features: the most frequent labels for all, or any labels at random."""
    dataset = load(source)
    assert dataset.test is not None
    points, labels = dataset.test.Y.shape
    k = min(5, labels)
    if kind == "frequency":
        counts = np.bincount(dataset.train.Y.indices, minlength=labels)
        top = np.tile(np.argsort(-counts, kind="stable")[:k], (points, 1))
    else:
        generator = np.random.default_rng(seed)
        top = np.stack([generator.choice(labels, k, replace=False) for _ in range(points)])
    return metrics.evaluate(dataset.test.Y, top, dataset.train.Y, dataset=source.name).scores


BASELINES: dict[str, Literal["frequency", "random"]] = {"label frequency": "frequency", "random ranking": "random"}


def beside_baselines(
    trained: Sequence[Numbers], sources: Sequence[Source], setups: Sequence[str], seed: int
) -> list[Numbers]:
    """A row for each dataset: the mean scores of all set-ups, and of the two baselines."""
    rows = []
    for source in sources:
        places = {setup: of(trained, source.name, setup) for setup in setups}
        places |= {name: [{"scores": baseline(source, kind, seed)}] for name, kind in BASELINES.items()}
        scores = {
            name: {m: [mean(found, f"{m}@{k + 1}") for k in range(len(v))] for m, v in found[0]["scores"].items()}
            for name, found in places.items()
        }
        texts = {name: {f"{m}@{k}": shown(found, f"{m}@{k}") for m, k in SHOWN} for name, found in places.items()}
        rows.append({"dataset": source.name, "seeds": len(places[setups[0]]), "scores": scores, "shown": texts})
    return rows


SHOWN = (("P", 1), ("P", 5), ("PSP", 1), ("PSP", 5))


def table_beside_baselines(rows: Sequence[Numbers]) -> list[list[str]]:
    header = ["dataset", "model", *(f"{m}@{k}" for m, k in SHOWN), "seeds"]
    lines = [
        [row["dataset"], name, *texts.values(), "" if name in BASELINES else row["seeds"]]
        for row in rows
        for name, texts in row["shown"].items()
    ]
    return result.table(header, lines)


def of(rows: Sequence[Numbers], dataset: str, setup: str) -> list[Numbers]:
    """The rows of one place in a table, one for each seed."""
    return [row for row in rows if (row["dataset"], row["setup"]) == (dataset, setup)]


def mean(rows: Sequence[Numbers], measure: str) -> float:
    """The mean over seeds of, say, P@1."""
    return statistics.fmean(_values(rows, measure))


def shown(rows: Sequence[Numbers], measure: str) -> str:
    """The mean over seeds, and the standard deviation where there are several."""
    values = _values(rows, measure)
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def command(name: str, seed: int, quick: bool, data: Path | None, only: Sequence[str] | None) -> str:
    """What to type to get a table again; where the data lies is the user's."""
    line = result.command(name, seed, quick) + " --data DIR" * (data is not None)
    return line + "".join(f" --only {chosen}" for chosen in only or ())


def _values(rows: Sequence[Numbers], measure: str) -> list[float]:
    name, _, k = measure.partition("@")
    return [row["scores"][name][: int(k)][-1] for row in rows]  # with fewer than k labels, at all of them


def _key(job: Job, dataset: Dataset) -> dict[str, Any]:
    """Everything the numbers follow from: the data by a sum over it, and what of the config is not as it comes."""
    usual = asdict(ModelConfig())
    said = {name: value for name, value in asdict(job.config).items() if value != usual[name]}
    said = {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}
    train = dataset.train
    total = zlib.crc32(train.Y.indices.tobytes(), zlib.crc32(train.X.data.tobytes()))
    return {
        "dataset": job.source.name,
        "model": _title(job),
        "seed": job.config.seed,
        "labels": dataset.n_labels,
        "points": len(train),
        "data": f"{total:08x}",
        "config": said,
    }


def _title(job: Job) -> str:
    """In short what is trained, to find its file by."""
    config = job.config
    if config.solved:
        return "ridge, recall" if config.uses_knn else "ridge"
    words = [config.network, *(str(n) for n in config.hidden or HIDDEN[config.network]), config.loss or "softmax"]
    if config.head == "holographic":
        words += [config.codebook, str(config.dim), *("learned-" + part for part in config.trainable)]
    if job.compute is not None:
        words.append(job.setup)
    return "-".join(words)
