"""Table 4 of the paper: more hidden layers and units, with a linear head and with the holographic one."""

from collections.abc import Sequence
from typing import Any

from holobind_paper import jobs as networks
from holobind_paper import published, result, training
from holobind_paper.datasets import Source
from holobind_paper.jobs import Job
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

DATASETS = ("tibkat-core-en", "gutenberg-lcsh", "yso-en")
MIN_LABELS = networks.MAX_LABELS_OF_SMALL_DATASETS + 1  # with fewer, d' is larger than they need
Size = tuple[int, int, int]  # hidden layers, hidden units, d'; d' = 0 for FC
ALL_SIZES: tuple[Size, ...] = (
    *((2, 512, 0), (2, 2048, 0), (3, 512, 0), (3, 2048, 0)),
    *((2, 512, 400), (2, 2048, 400), (2, 2048, 1500), (2, 2048, 3000)),
    *((3, 512, 400), (3, 2048, 400), (3, 2048, 750), (3, 2048, 1500), (3, 2048, 3000)),
)
SIZES: dict[str, tuple[Size, ...]] = {  # where all sizes would take too long
    "tibkat-core-en": tuple(size for size in ALL_SIZES if size != (3, 2048, 750)),
    "gutenberg-lcsh": (
        *((2, 512, 0), (3, 512, 0)),
        *((2, 512, 400), (2, 2048, 400), (2, 2048, 3000), (3, 512, 400), (3, 2048, 3000)),
    ),
    "yso-en": ((2, 512, 0), (2, 512, 400)),
}
# FC needs more epochs than HRR-FC until it has learned, and three layers need more than two (experiments/LOG.md).
EPOCHS = {"FC": 10, "HRR-FC": networks.LARGE_OPTIONS["epochs"], "HRR-FC, three layers": 10}
LARGER_DATASETS_EPOCHS = {  # of more rows each: as many as are affordable
    "gutenberg-lcsh": {"FC": 6, "HRR-FC": 5, "HRR-FC, three layers": 5},
    "yso-en": {"FC": 2, "HRR-FC": 2},
}
MAX_QUICK_UNITS = 512  # hidden units of the largest network in a quick run
WIKI10_LABELS = 30938  # the outputs of FC in the paper's table


def sizes(source: Source, quick: bool) -> list[Size]:
    listed = SIZES.get(source.name, ALL_SIZES)
    return [size for size in listed if not quick or size[1] <= MAX_QUICK_UNITS]


def network(size: Size) -> str:
    return "HRR-FC" if size[2] else "FC"


def _trained_as(size: Size) -> str:
    return "HRR-FC, three layers" if size[2] and size[0] > 2 else network(size)


def jobs(sources: Sequence[Source], quick: bool) -> list[Job]:
    wanted = []
    for source in sources:
        for size in sizes(source, quick):
            layers, hidden, dim = size
            epochs = LARGER_DATASETS_EPOCHS.get(source.name, EPOCHS)[_trained_as(size)]
            changes = networks.LARGE_OPTIONS | {"epochs": epochs}
            if (layers, hidden) != (2, 512):
                changes["hidden"] = (hidden,) * layers
            options = networks.hrr_fc(dim, **changes) if dim else networks.fc(**changes)
            wanted.append(Job(source, str(size), options, seeds=1))
    return sorted(wanted, key=networks.estimate)  # a table that is not finished has as many cells as possible


def build(sources: Sequence[Source], found: Found, quick: bool) -> dict[str, Any]:
    paper = {
        (row["network"], int(row["layers"]), int(row["hidden"]), int(row["out"])): float(row["P@5"])
        for row in published.read("table_network_size")
    }
    rows = []
    for source in sources:
        for size in sizes(source, quick):
            layers, hidden, dim = size
            cells = found[source.name, str(size)]
            row: dict[str, Any] = {"dataset": source.name, "network": network(size), "layers": layers, "hidden": hidden}
            row |= {"dim": dim, "labels": source.labels}
            if cells:
                row |= {"P@5": training.mean(cells, "P@5"), "P@1": training.mean(cells, "P@1")}
                row["parameters"] = cells[0]["parameters"]
            row["paper"] = paper.get(("FC" if not dim else "HRR", layers, hidden, dim or WIKI10_LABELS))
            rows.append(row)
    return {
        "title": "Network size (table 4)",
        "summary": _summary(rows),
        "notes": [
            "The paper's numbers are of Wiki10-31K (30,938 labels); on other datasets compare the "
            "trend, not the values. "
            f"Each network is trained with one seed in batches of {networks.LARGE_OPTIONS['batch_size']}. Epochs: "
            + _epochs_text(EPOCHS)
            + "".join(f"; on {name} {_epochs_text(epochs)}" for name, epochs in LARGER_DATASETS_EPOCHS.items())
            + "."
        ],
        "table": _table(rows),
        "rows": rows,
    }


def _epochs_text(epochs: dict[str, int]) -> str:
    return ", ".join(f"{n} ({trained})" for trained, n in epochs.items())


def _summary(rows: list[dict[str, Any]]) -> str:
    text = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        ranges = []
        for kind in ("FC", "HRR-FC"):
            values = [row["P@5"] for row in rows if (row["dataset"], row["network"]) == (name, kind) and "P@5" in row]
            if values:
                ranges.append(f"{min(values):.1f} to {max(values):.1f} with {kind}")
        if ranges:
            text.append(f"{name}: P@5 is {', '.join(ranges)}")
    return "; ".join(text) or NOT_RUN


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "network", "hidden layers", "hidden units", "outputs", "million parameters"]
    header += ["P@1", "P@5", "P@5 in the paper (Wiki10-31K)"]
    lines = [
        [
            *(row[name] for name in ("dataset", "network", "layers", "hidden")),
            row["dim"] or row["labels"],
            f"{row['parameters'] / 1e6:.2f}" if "parameters" in row else "",
            *(f"{row[metric]:.1f}" if metric in row else NOT_RUN for metric in ("P@1", "P@5")),
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    return result.table(header, lines)
