"""Models with linear and holographic heads, trained on one dataset: accuracy, size and time of each."""

import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from holobind.data import Dataset, Split
from holobind.errors import OptionError
from holobind.model import Model
from holobind.training.config import ModelConfig, TrainConfig
from holobind.training.learning import Callbacks, learn
from holobind.training.loop import validation_split

CANDIDATES = {
    "fc, linear head, bce": {"network": "fc", "head": "linear", "loss": "bce"},
    "fc, holographic head, query": {"network": "fc", "loss": "query"},
    "fc, holographic head, softmax": {"network": "fc", "loss": "softmax"},
    "fc, holographic head, squares": {"network": "fc"},
    "ridge + kNN, holographic head, closed form": {},
}
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")
TIMED_PREDICTIONS = 4
COLUMNS = ("P@1", "P@5", "PSP@1", "parameters", "output layer", "train seconds", "predict rows/s")

Row = dict[str, Any]


def run_candidates(
    dataset: Dataset,
    *,
    epochs: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    callbacks: Callable[[str], Callbacks] | None = None,
) -> list[Row]:
    """Train every candidate on the training split; evaluate it on the test split, or on a tenth of the rows.

    All networks with hidden layers have the same layers and the same number of epochs; the epoch with the best metric
    on held-out training rows counts. A linear head that is too large for memory is not trained, and its row says why:
    {"name": ..., "skipped": ...}.

    callbacks   from the name of a candidate to the callbacks of its training
    """
    train, test = _train_test(dataset, seed)
    train_config = TrainConfig(epochs=epochs, time_limit=time_limit, seed=seed, patience=0)
    rows: list[Row] = []
    for name, options in CANDIDATES.items():
        config = ModelConfig(**options, seed=seed)  # type: ignore[arg-type]
        try:
            model = learn(train, config, train_config, callbacks=callbacks(name) if callbacks else None)
        except OptionError as error:
            if config.head != "linear":
                raise
            rows.append({"name": name, "skipped": str(error)})
            continue
        rows.append({"name": name, **_measure(model, test, dataset.name)})
    return rows


def _train_test(dataset: Dataset, seed: int) -> tuple[Split, Split]:
    """The two splits without their texts: all candidates read the same features."""
    train, test = dataset.train, dataset.test
    if test is not None:
        return Split(train.X, train.Y), Split(test.X, test.Y)
    kept, held_out = validation_split(len(train), 0.1, seed)
    if not len(held_out):
        raise OptionError(f"{len(train)} rows are too few to compare on; give at least 10, or a test split")
    return Split(train.X[kept], train.Y[kept]), Split(train.X[held_out], train.Y[held_out])


def _measure(model: Model, test: Split, dataset: str) -> Row:
    k = min(5, model.n_labels)
    seconds = []
    for _ in range(TIMED_PREDICTIONS):  # the first call compiles and caches; the minimum is disturbed least
        start = time.perf_counter()
        model.top_k(test.X, k)
        seconds.append(time.perf_counter() - start)
    evaluation = model.evaluate(test, k, dataset=dataset)
    sizes = model.sizes()
    training = model.metadata.get("training")
    return {
        **{name: evaluation[name] for name in METRICS if int(name[-1]) <= k},
        "parameters": sizes["parameters"],
        "output layer": sizes["output layer"],
        "epochs": len(training["history"]) if training else None,
        "train seconds": model.metadata["timings"]["training"],
        "predict rows/s": round(len(test) / min(seconds), 1),
    }


def table(rows: list[Row], title: str) -> Table:
    """A table of the results of `run_candidates`; metrics are percentages, sizes are numbers of parameters."""
    shown = Table("model", title=f"{title}; metrics in percent")
    for column in COLUMNS:
        shown.add_column("output layer parameters" if column == "output layer" else column, justify="right")
    for row in rows:
        shown.add_row(
            row["name"], *("-" if row.get(column) is None else _cell(column, row[column]) for column in COLUMNS)
        )
    return shown


def _cell(column: str, value: float) -> str:
    decimals = 2 if column in METRICS else 1 if column == "train seconds" else 0
    return f"{value:,.{decimals}f}"
