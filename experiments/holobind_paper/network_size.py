"""Table 4 of the paper: more hidden layers and units, with a linear head and with the holographic one."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, published, result, training
from holobind_paper.training import Job

DATASETS = ("Wiki10-31K", "Bibtex")
SIZES = ((2, 512), (2, 2048), (3, 512), (3, 2048))  # hidden layers and units of FC
HRR_SIZES = ((2, 512, 400), (3, 512, 400), (3, 2048, 400), (3, 2048, 750), (3, 2048, 1500), (3, 2048, 3000))
MAX_QUICK_UNITS = 512  # hidden units of the largest network in a quick run
WIKI10_LABELS = 30938  # the outputs of FC in the paper's table


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train every size once."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    sizes = [("FC", layers, hidden, 0) for layers, hidden in SIZES] + [("HRR-FC", *size) for size in HRR_SIZES]
    if quick:
        sizes = [size for size in sizes if size[2] <= MAX_QUICK_UNITS]
    jobs = []
    for source in sources:
        for network, layers, hidden, dim in sizes:
            shape = {"hidden": (hidden,) * layers}
            options = training.hrr_fc(dim, **shape) if dim else training.fc(**shape)
            jobs.append(Job(source, f"{network} {layers} {hidden} {dim}", options))
    trained = training.finish(out, "network-size", jobs, seed, quick, seeds=1)
    paper = {
        (row["network"], int(row["layers"]), int(row["hidden"]), int(row["out"])): float(row["P@5"])
        for row in published.read("table_network_size")
    }
    rows = []
    for source in sources:
        for network, layers, hidden, dim in sizes:
            found = training.of(trained, source.name, f"{network} {layers} {hidden} {dim}")
            row = {"dataset": source.name, "network": network, "layers": layers, "hidden": hidden, "dim": dim}
            row |= {"P@5": training.mean(found, "P@5"), "P@1": training.mean(found, "P@1")}
            row["labels"], row["parameters"] = found[0]["labels"], found[0]["parameters"]
            row["paper"] = paper.get(("FC" if not dim else "HRR", layers, hidden, dim or WIKI10_LABELS))
            rows.append(row)
    return result.save(
        out,
        "network-size",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=1,
        command=training.command("network-size", seed, quick, data, only),
        seconds=cells.seconds(trained),
        title="Network size (table 4)",
        summary=_summary(rows),
        notes=[
            "The paper's numbers are of Wiki10-31K; on other datasets compare the trend, not the values. Each network "
            "is trained with one seed."
        ],
        table=_table(rows),
        rows=rows,
    )


def _range(rows: list[dict[str, Any]], dataset: str, network: str) -> str:
    found = [row["P@5"] for row in rows if (row["dataset"], row["network"]) == (dataset, network)]
    return f"{min(found):.1f} to {max(found):.1f} with {network}"


def _summary(rows: list[dict[str, Any]]) -> str:
    names = dict.fromkeys(row["dataset"] for row in rows)
    return "; ".join(f"{name}: P@5 is {_range(rows, name, 'FC')}, {_range(rows, name, 'HRR-FC')}" for name in names)


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "network", "hidden layers", "hidden units", "outputs", "million parameters"]
    header += ["P@1", "P@5", "P@5 in the paper (Wiki10-31K)"]
    lines = [
        [
            *(row[name] for name in ("dataset", "network", "layers", "hidden")),
            row["dim"] or row["labels"],
            f"{row['parameters'] / 1e6:.2f}",
            *(f"{row[metric]:.1f}" for metric in ("P@1", "P@5")),
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    return result.table(header, lines)
