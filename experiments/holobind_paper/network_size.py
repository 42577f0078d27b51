"""Table 4 of the paper: more layers and hidden units, with a linear output layer and with the holographic one."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, published, result, training
from holobind_paper.training import Job

DATASETS = ("Wiki10-31K", "Bibtex")
SIZES = ((2, 512), (2, 2048), (3, 512), (3, 2048))  # hidden layers and units of FC
HRR_SIZES = ((2, 512, 400), (3, 512, 400), (3, 2048, 400), (3, 2048, 750), (3, 2048, 1500), (3, 2048, 3000))
QUICK = 512  # hidden units at most


def run(
    out: Path, seed: int = 0, quick: bool = False, data: Path | None = None, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Train every size once."""
    started = time.monotonic()
    sources = training.pick(data, only, quick, DATASETS)
    sizes = [("FC", layers, hidden, 0) for layers, hidden in SIZES] + [("HRR-FC", *size) for size in HRR_SIZES]
    if quick:
        sizes = [size for size in sizes if size[2] <= QUICK]
    jobs = []
    for source in sources:
        for network, layers, hidden, dim in sizes:
            shape = {"hidden": (hidden,) * layers}
            config = training.hrr_fc(dim, **shape) if dim else training.fc(**shape)
            jobs.append(Job(source, f"{network} {layers} {hidden} {dim}", config))
    trained = training.finish(out, jobs, seed, quick, seeds=1)
    paper = {(p["network"], int(p["layers"]), int(p["hidden"]), int(p["out"])): float(p["P@5"]) for p in _published()}
    rows = []
    for source in sources:
        for network, layers, hidden, dim in sizes:
            found = training.of(trained, source.name, f"{network} {layers} {hidden} {dim}")
            row = {"dataset": source.name, "network": network, "layers": layers, "hidden": hidden, "dim": dim}
            row |= {"P@5": training.mean(found, "P@5"), "P@1": training.mean(found, "P@1")}
            row["labels"], row["parameters"] = found[0]["labels"], found[0]["parameters"]
            row["paper"] = paper.get(("FC" if not dim else "HRR", layers, hidden, dim or 30938))
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
        notes=["The paper's numbers are of Wiki10-31K; on other datasets compare the trend, not the values. One seed."],
        table=_table(rows),
        rows=rows,
    )


def _published() -> list[dict[str, str]]:
    return published.read("table_network_size")


def _spread(rows: list[dict[str, Any]], dataset: str, network: str) -> str:
    found = [row["P@5"] for row in rows if (row["dataset"], row["network"]) == (dataset, network)]
    return f"{network} {min(found):.1f} to {max(found):.1f}"


def _summary(rows: list[dict[str, Any]]) -> str:
    names = dict.fromkeys(row["dataset"] for row in rows)
    return "; ".join(
        f"{name}: P@5 of {_spread(rows, name, 'FC')}, of {_spread(rows, name, 'HRR-FC')}" for name in names
    )


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "network", "hidden layers", "hidden units", "outputs", "million parameters"]
    header += ["P@1", "P@5", "P@5 in the paper (Wiki10-31K)"]
    lines = [
        [
            *(row[name] for name in ("dataset", "network", "layers", "hidden")),
            row["dim"] or row["labels"],
            f"{row['parameters'] / 1e6:.2f}",
            *(f"{row[measure]:.1f}" for measure in ("P@1", "P@5")),
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    return result.table(header, lines)
