"""Linear and holographic output layers side by side on one dataset: accuracy, size and time."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.table import Table

from holobind.data import Dataset, Split
from holobind.errors import OptionError
from holobind.model import Model
from holobind.training import loop as train
from holobind.training.config import ModelConfig
from holobind.training.learning import Callbacks, learn

CANDIDATES = {
    "fc, linear head, bce": ModelConfig(network="fc", head="linear", loss="bce"),
    "fc, holographic head, query": ModelConfig(network="fc", loss="query"),
    "fc, holographic head, softmax": ModelConfig(network="fc", loss="softmax"),
    "linear, holographic head, closed form": ModelConfig(),
}
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")

Row = dict[str, Any]


def compare(
    dataset: Dataset,
    *,
    epochs: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    watch: Callable[[str], Callbacks] | None = None,
) -> list[Row]:
    """Train every candidate on the training part, and measure it on the test part, or on a tenth of the rows.

    All networks that are trained have the same body and the same epochs; the best one by rows held out from training
    counts. A linear head too large for memory is left out, and its row says why: {"name": ..., "refused": ...}.
    """
    fitted, asked = _parts(dataset, seed)
    rows: list[Row] = []
    for name, candidate in CANDIDATES.items():
        config = replace(candidate, epochs=epochs, time_limit=time_limit, seed=seed, patience=0)
        try:
            model = learn(fitted, config, watch=watch(name) if watch else None)
        except OptionError as error:
            if candidate.head != "linear":
                raise
            rows.append({"name": name, "refused": str(error)})
            continue
        rows.append({"name": name, **_measured(model, asked, dataset.name)})
    return rows


def _parts(dataset: Dataset, seed: int) -> tuple[Split, Split]:
    """Features only: what is compared is how they become labels, not how texts become features."""
    if dataset.test is not None:
        return Split(dataset.train.X, dataset.train.Y), Split(dataset.test.X, dataset.test.Y)
    kept, held = train.split(len(dataset.train), 0.1, seed)
    if not len(held):
        raise OptionError(f"{len(dataset.train)} points are too few to compare on; give at least 10, or a test part")
    return tuple(Split(dataset.train.X[rows], dataset.train.Y[rows]) for rows in (kept, held))  # type: ignore[return-value]


def _measured(model: Model, part: Split, dataset: str) -> Row:
    k = min(5, model.n_labels)
    took = []
    for _ in range(4):  # the first call prepares what later ones use; the best of them was disturbed least
        began = time.perf_counter()
        model.top_k(part.X, k)
        took.append(time.perf_counter() - began)
    found = model.evaluate(part, k, dataset=dataset)
    sizes = model.sizes()
    training = model.metadata.get("training")
    return {
        **{name: found[name] for name in MEASURES if int(name[-1]) <= k},
        "parameters": sizes["parameters"],
        "output layer": sizes["output layer"],
        "epochs": len(training["history"]) if training else None,
        "train seconds": model.metadata["seconds"],
        "predict rows/s": round(len(part) / min(took), 1),
    }


def table(rows: list[Row], title: str) -> Table:
    columns = ("P@1", "P@5", "PSP@1", "parameters", "output layer", "train seconds", "predict rows/s")
    shown = Table("", title=title)
    for column in columns:
        shown.add_column(column, justify="right")
    for row in rows:
        if "refused" in row:
            shown.add_row(row["name"], *["-"] * len(columns))
            continue
        accuracy = (f"{row[c]:.2f}" if c in row else "-" for c in columns[:3])
        rest = (f"{row[c]:,.1f}" if c == "train seconds" else f"{row[c]:,.0f}" for c in columns[3:])
        shown.add_row(row["name"], *accuracy, *rest)
    return shown
