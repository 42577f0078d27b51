"""Table 2 of the paper: how many weights of the output layer, and of the network, the holographic head saves.

FC:       features x 512 + 512 x 512 + 512 x L          HRR-FC:   features x 512 + 512 x 512 + 512 x d'

The paper counts weights and no biases (with them EURLex-4K's network would be 37.83, not 37.80), and cuts its
percentages off after two digits. p, m and the label vectors are not learned and are not counted; the paper draws them
again from a seed, and holobind's orbit keeps L numbers.
"""

import time
from pathlib import Path
from typing import Any

from holobind_paper import published, result

HIDDEN = 512


def weights(features: int, outputs: int, hidden: int = HIDDEN) -> tuple[int, int]:
    """Of the output layer and of the whole network, without biases."""
    return hidden * outputs, hidden * (features + hidden + outputs)


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Exact arithmetic for all eight datasets, beside the paper's percentages. There is nothing random or slow."""
    started = time.monotonic()
    theirs = {row["dataset"]: row for row in published.read("table_compression")}
    rows: list[dict[str, Any]] = []
    for row in published.read("table_datasets"):
        name, features, labels, dim = row["dataset"], int(row["features"]), int(row["labels"]), int(row["hrr_dim"])
        full, small = weights(features, labels), weights(features, dim)
        found: dict[str, Any] = {"dataset": name, "features": features, "labels": labels, "dim": dim}
        for part, before, after in zip(("output", "network"), full, small, strict=True):
            found |= {f"{part}_fc": before, f"{part}_hrr": after, f"{part}_percent": saved(before, after)}
            if name in theirs:
                paper = float(theirs[name]["output_layer_percent" if part == "output" else "network_percent"])
                found |= {f"{part}_paper": paper, f"{part}_equal": found[f"{part}_percent"] == paper}
        rows.append(found)
    equal = {part: sum(row.get(f"{part}_equal", False) for row in rows) for part in ("output", "network")}
    return result.save(
        out,
        "compression",
        None,
        started,
        seed=seed,
        quick=quick,
        title="Compression (table 2)",
        summary=f"output layer: {equal['output']} of {len(theirs)} percentages equal the paper's; network: "
        f"{equal['network']} of {len(theirs)}; the others do not follow from the paper's own sizes",
        notes=_notes(rows),
        table=_table(rows),
        rows=rows,
    )


def saved(before: int, after: int) -> float:
    """The share of weights saved in percent, cut off after two digits as in the paper: 59.308 is 59.30."""
    return 10_000 * (before - after) // before / 100


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "d'", "FC, million weights", "HRR-FC"]
    header += ["output saved, paper / ours", "network saved, paper / ours", "the paper agrees with its sizes"]
    lines = []
    for row in rows:
        agrees = [row[f"{part}_equal"] for part in ("output", "network") if f"{part}_equal" in row]
        verdict = "" if not agrees else "yes" if all(agrees) else "in the output only" if agrees[0] else "no"
        both = [
            f"{row[f'{part}_paper']:.2f} / {row[f'{part}_percent']:.2f}"
            if f"{part}_paper" in row
            else f"{row[f'{part}_percent']:.2f}"
            for part in ("output", "network")
        ]
        sizes = f"{row['labels']:,}", row["dim"], *(f"{row[f'network_{net}'] / 1e6:.2f}" for net in ("fc", "hrr"))
        lines.append([row["dataset"], *sizes, *both, verdict])
    return result.table(header, lines)


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    wrong = [row for row in rows if not row.get("network_equal", True)]
    larger = [row["dataset"] for row in rows if row["dim"] > row["labels"]]
    notes = [
        "Percentages are the share of weights saved, cut off after two digits as in the paper.",
        f"{', '.join(larger)}: d' is larger than the number of labels, so the paper's size makes the layer larger; the "
        "paper's table leaves them out.",
    ]
    if wrong:
        told = "; ".join(
            f"{row['dataset']} {row['network_paper']:.2f} in the paper, {row['network_percent']:.2f} by its sizes"
            for row in wrong
        )
        notes.append(
            f"The formula that gives the paper's other network percentages to the last digit does not give: {told}."
        )
    if wrong := [row for row in rows if not row.get("output_equal", True)]:
        told = "; ".join(
            f"{row['dataset']} {row['output_paper']:.2f} in the paper, 1 - {row['dim']} / {row['labels']} is "
            f"{row['output_percent']:.2f}"
            for row in wrong
        )
        notes.append(f"Output layer: {told}.")
    return notes
