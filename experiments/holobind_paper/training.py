"""What the tables of trained networks share: training and evaluation of a cell, finished cells, means over seeds.

A table is a module with

    DATASETS                          the datasets that `make paper` runs it on, besides those of the paper
    MIN_LABELS                        of the paper's datasets that it runs on; a table need not have it
    jobs(sources, quick)              its networks (`jobs.Job`)
    build(sources, found, quick)      title, summary, notes, table and rows of the cells in `found`, some may be missing

The tables share their cells: a network that two tables need is trained once.
"""

import statistics
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from holobind import metrics
from holobind.data import Dataset
from holobind.errors import TrainingInterrupted
from holobind.model import Model
from holobind.ridge_knn.fit_checkpoint import remove_checkpoint
from holobind.training import learn
from holobind_paper import cells, result
from holobind_paper import jobs as networks
from holobind_paper.datasets import Source, by_name, chosen
from holobind_paper.jobs import Job, Row, configs
from holobind_paper.result import NOT_RUN

MAX_QUICK_DATASETS = 2
MAX_ROWS_OF_QUICK_DATASETS = 13_000  # with more rows a network takes minutes
TABLE_METRICS = (("P", 1), ("P", 5), ("PSP", 1), ("PSP", 5))
# Labels by the number of their training rows: (name, fewest, most).
FREQUENCY_BANDS = (("1 to 5", 1, 5), ("6 to 20", 6, 20), ("21 to 100", 21, 100), ("over 100", 101, None))


class Found(dict[tuple[str, str], list[Row]]):
    """Finished cells by dataset and setup, one row for each seed; what is not finished is an empty list."""

    def __missing__(self, key: tuple[str, str]) -> list[Row]:
        return []


def run(
    module: ModuleType,
    out: Path,
    seed: int = 0,
    quick: bool = False,
    data: Path | None = None,
    only: Sequence[str] | None = None,
) -> Row:
    """Train the networks of a table that are not trained yet, and write the table."""
    started = time.monotonic()
    sources = pick(data, only, quick, module.DATASETS, min_labels=min_labels(module))
    found = finish(out, name_of(module), module.jobs(sources, quick), seed, quick)
    built = _built(module, sources, found, quick)
    return result.save(
        out,
        name_of(module),
        built.pop("figure", None),
        started,
        **built | {"seed": seed, "quick": quick, "command": command(name_of(module), seed, quick, data, only)},
    )


def collect(module: ModuleType, out: Path, seed: int = 0, figures: Path | None = None) -> Row | None:
    """A table of the cells that are finished, without training; None if there is none. It needs no data.

    figures   the folder for its figure, if it has one
    """
    stored = stored_cells(out)
    here = {cell["key"]["dataset"] for cell in cells.read(out / f"{name_of(module)}.jsonl").values()}
    others = [by_name(name) for name in sorted(here - set(module.DATASETS))]
    sources = [by_name(name) for name in module.DATASETS]
    sources += [source for source in others if source.labels >= min_labels(module)]
    found, times, machines = Found(), [], []
    for job in module.jobs(sources, False):
        for one in (seed + offset for offset in range(job.n_seeds(False))):
            cell = stored.get(cells.identity(networks.key(job, one)))
            if cell is not None and all(name in cell["result"] for name in job.needs):
                found.setdefault((job.source.name, job.setup), []).append(_row(cell))
                times.append(cell["seconds"])
                machines.append(cell.get("machine", ""))
    if not times:
        return None
    built = _built(module, sources, found, False)
    figure = built.pop("figure", None)
    if figure is not None and figures is not None:
        result.save_figure(figures, name_of(module), figure)
    header = {"experiment": name_of(module), "quick": False, "seed": seed, "seconds": sum(times)}
    header |= {"machine": machines[-1], "command": command(name_of(module), seed, False, Path(), None)}
    return header | built


def _built(module: ModuleType, sources: Sequence[Source], found: Found, quick: bool) -> Row:
    built: Row = module.build(sources, found, quick)
    rows = [row for seeds in found.values() for row in seeds]
    counted = {"seconds": cells.seconds(rows), "trials": max((len(seeds) for seeds in found.values()), default=0)}
    return counted | built


def min_labels(module: ModuleType) -> int:
    """The fewest labels of the paper's datasets that a table is about."""
    return int(getattr(module, "MIN_LABELS", 0))


def name_of(module: ModuleType) -> str:
    """The name of a table: learned_labels is learned-labels."""
    return module.__name__.rpartition(".")[2].replace("_", "-")


def pick(
    data: Path | None,
    only: Sequence[str] | None,
    quick: bool,
    among: Sequence[str] = (),
    fallback: str = "python-calls",
    *,
    min_labels: int = 0,
) -> list[Source]:
    """The datasets of a table: the available ones that are in `among`, or else `fallback`.

    `only` names the datasets and overrides `among`. A quick run uses the first two and leaves out large ones. Datasets
    of the paper that have at least `min_labels` labels are used wherever they are available.
    """
    sources = [
        source
        for source in chosen(data, only)
        if only or not quick or source.published or source.rows <= MAX_ROWS_OF_QUICK_DATASETS
    ]
    if not only:
        listed = [
            source for source in sources if source.name in among or (source.published and source.labels >= min_labels)
        ]
        sources = listed or [source for source in sources if source.name == fallback]
    return sources[:MAX_QUICK_DATASETS] if quick else sources


@lru_cache(maxsize=1)
def load(source: Source) -> Dataset:
    return source.load()


def finish(out: Path, table: str, wanted: Sequence[Job], seed: int, quick: bool) -> Found:
    """Train the networks that are not trained yet; return all of them."""
    listed, places = [], []
    for job in wanted:
        for cell in wanted_cells(out, job, seed, quick):
            listed.append(cell)
            places.append((job.source.name, job.setup))
    found = Found()
    for place, row in zip(places, cells.finish(out, table, listed, shared_with=_tables()), strict=True):
        found.setdefault(place, []).append(row)
    return found


def wanted_cells(out: Path, job: Job, seed: int, quick: bool) -> list[cells.Cell]:
    """The cells of a job, one for each seed."""
    fewer = {"epochs": networks.QUICK_EPOCHS} if quick and "epochs" in job.options else {}
    dataset = load(job.source)
    listed = []
    for one in (seed + offset for offset in range(job.n_seeds(quick))):
        seeded = replace(job, options=job.options | fewer | {"seed": one})
        key = networks.key(seeded, one) | networks.data_key(dataset)
        listed.append(cells.Cell(key, partial(job.compute or train, seeded, out), job.needs))
    return listed


def stored_cells(out: Path) -> dict[str, Row]:
    """The finished cells of all tables, by what identifies them apart from the data."""
    found: dict[str, Row] = {}
    for name in _tables():
        for cell in cells.read(out / f"{name}.jsonl").values():
            key = {field: value for field, value in cell["key"].items() if field not in ("labels", "rows", "crc32")}
            identity = cells.identity(key)
            if identity not in found or len(cell["result"]) >= len(found[identity]["result"]):
                found[identity] = cell
    return found


def _tables() -> Sequence[str]:
    from holobind_paper.registry import TRAINED_TABLES

    return TRAINED_TABLES


def _row(cell: Row) -> Row:
    return {**cell["key"], **cell["result"], "cell_seconds": cell["seconds"]}


# One cell


def train(job: Job, out: Path) -> Row:
    """Train one network and evaluate it on the test split; an interrupted training resumes from its last epoch."""
    dataset = load(job.source)
    identity = zlib.crc32(repr((networks.key(job, job.options["seed"]), networks.data_key(dataset))).encode())
    checkpoint = out / f"unfinished-{identity:08x}.safetensors"
    model_config, train_config = configs(job.options)
    try:
        model = learn(dataset.train, model_config, train_config, checkpoint=checkpoint, resume=True)
    except TrainingInterrupted:
        result.notify(f"stopped; the next run resumes from {checkpoint}")
        raise KeyboardInterrupt from None
    row = evaluated(model, job.source)
    if model_config.closed_form:
        remove_checkpoint(checkpoint)
    else:
        checkpoint.unlink(missing_ok=True)
    return row


def evaluated(model: Model, source: Source) -> Row:
    """All metrics on the test split, recall by frequency of labels, the number of parameters, the validation curve."""
    dataset = load(source)
    assert dataset.test is not None
    k = min(5, model.n_labels)
    top = model.top_k(model.inputs_of(dataset.test), k)[1]
    row: Row = scored(dataset, top, source.name)
    row["parameters"] = model.sizes()["parameters"]
    if training := model.metadata.get("training"):
        history = training["history"]
        row |= {"best_epoch": training["best epoch"], "epochs_run": len(history)}
        row["validation P@1"] = [entry["P@1"] for entry in history if "P@1" in entry]
    return row


def scored(dataset: Dataset, top: np.ndarray[Any, Any], name: str) -> Row:
    """All metrics of the top labels of each test row, and recall@5 of labels by their frequency in training."""
    assert dataset.test is not None
    Y = dataset.test.Y
    counts = np.bincount(dataset.train.Y.indices, minlength=dataset.n_labels)
    present = np.bincount(Y.indices, minlength=dataset.n_labels)
    row_of = np.repeat(np.arange(Y.shape[0]), top.shape[1])
    truth = set(zip(np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)).tolist(), Y.indices.tolist(), strict=True))
    hits = [
        label for place, label in zip(row_of.tolist(), top.ravel().tolist(), strict=True) if (place, label) in truth
    ]
    found = np.bincount(np.array(hits, dtype=np.int64), minlength=dataset.n_labels)
    bands = {}
    for band, fewest, most in FREQUENCY_BANDS:
        inside = (counts >= fewest) & (counts <= (most or counts.max()))
        if total := int(present[inside].sum()):
            bands[band] = {"recall@5": 100 * int(found[inside].sum()) / total, "labels in test rows": total}
    return {"scores": metrics.evaluate(Y, top, dataset.train.Y, dataset=name).scores, "bands": bands}


def ranking(kind: str, source: Source) -> Job:
    """A ranking that ignores the features: the most frequent labels for all rows ("frequency"), or labels at random."""
    return Job(source, BASELINES[kind], {}, {"ranking": kind}, rank_without_features, seeds=1)


BASELINES = {"frequency": "label frequency", "chance": "random ranking"}


def rank_without_features(job: Job, out: Path) -> Row:
    dataset = load(job.source)
    assert dataset.test is not None
    n_rows, n_labels = dataset.test.Y.shape
    k = min(5, n_labels)
    if job.variant["ranking"] == "frequency":
        counts = np.bincount(dataset.train.Y.indices, minlength=n_labels)
        top = np.tile(np.argsort(-counts, kind="stable")[:k], (n_rows, 1))
    else:
        generator = np.random.default_rng(job.options.get("seed", 0))
        top = np.stack([generator.choice(n_labels, k, replace=False) for _ in range(n_rows)])
    return scored(dataset, top, job.source.name)


# Means over seeds, as numbers and as text


def mean(rows: Sequence[Row], metric: str) -> float:
    """The mean over seeds of a metric such as P@1."""
    return statistics.fmean(values(rows, metric))


def mean_scores(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The means over seeds of all metrics at all k."""
    return {
        metric: [mean(rows, f"{metric}@{k + 1}") for k in range(len(found))]
        for metric, found in rows[0]["scores"].items()
    }


def mean_bands(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The means over seeds of recall@5 by frequency of labels; empty if a row has none."""
    if not all("bands" in row for row in rows):
        return {}
    return {
        band: {
            "recall@5": statistics.fmean(row["bands"][band]["recall@5"] for row in rows),
            "labels in test rows": found["labels in test rows"],
        }
        for band, found in rows[0]["bands"].items()
    }


def mean_text(rows: Sequence[Row], metric: str) -> str:
    """The mean over seeds, with the standard deviation if there are several; "not run yet" without any."""
    if not rows:
        return NOT_RUN
    found = values(rows, metric)
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    return f"{statistics.fmean(found):.1f}{spread}"


def values(rows: Sequence[Row], metric: str) -> list[float]:
    """A metric of each seed."""
    name, _, k = metric.partition("@")
    return [row["scores"][name][: int(k)][-1] for row in rows]  # with fewer than k labels, at all of them


def means_of_setups(found: Found, dataset: str, setups: Sequence[str]) -> Row:
    """The mean scores and texts of the setups that are finished."""
    finished = {setup: found[dataset, setup] for setup in setups if found[dataset, setup]}
    return {
        "scores": {setup: mean_scores(rows) for setup, rows in finished.items()},
        "texts": {
            setup: {f"{m}@{k}": mean_text(found[dataset, setup], f"{m}@{k}") for m, k in TABLE_METRICS}
            for setup in setups
        },
        "seeds": {setup: len(found[dataset, setup]) for setup in setups},
    }


def table_of_setups(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each dataset and setup, also where it is not run yet."""
    header = ["dataset", "model", *(f"{m}@{k}" for m, k in TABLE_METRICS), "seeds"]
    lines = [
        [row["dataset"], setup, *texts.values(), row["seeds"][setup]]
        for row in rows
        for setup, texts in row["texts"].items()
    ]
    return result.table(header, lines)


def command(name: str, seed: int, quick: bool, data: Path | None, only: Sequence[str] | None) -> str:
    """The command line that computes a table; DIR stands for the user's folder of datasets."""
    named = "accuracy --preset authors" if name == "authors" else name
    line = result.command(named, seed, quick) + " --data DIR" * (data is not None)
    return line + "".join(f" --only {dataset}" for dataset in only or ())
