"""Table 2 of the paper: how many weights of the output layer, and of the network, the holographic head saves.

FC:       features x 512 + 512 x 512 + 512 x L          HRR-FC:   features x 512 + 512 x 512 + 512 x d'

The paper counts weights and no biases (with them EURLex-4K's network would be 37.83, not 37.80), and truncates its
percentages after two digits. p, m and the label vectors are not trained and are not counted: the paper draws them again
from a seed, and holobind's orbit stores L floats.
"""

import time
from pathlib import Path
from typing import Any

from holobind_paper import published, result

HIDDEN_UNITS = 512
SCOPES = ("output", "network")  # what is counted: the output layer, the whole network


def weights(features: int, outputs: int, hidden: int = HIDDEN_UNITS) -> tuple[int, int]:
    """Weights of the output layer and of the whole network, without biases."""
    return hidden * outputs, network_weights(features, outputs, hidden, 2)


def network_weights(features: int, outputs: int, hidden: int, layers: int) -> int:
    """Weights of a network with hidden layers of one size, without biases."""
    return hidden * (features + (layers - 1) * hidden + outputs)


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Compute the percentages for all eight datasets, next to the paper's. Nothing is random or slow."""
    started = time.monotonic()
    papers = {row["dataset"]: row for row in published.read("table_compression")}
    rows: list[dict[str, Any]] = []
    for row in published.read("table_datasets"):
        name, features, labels, dim = row["dataset"], int(row["features"]), int(row["labels"]), int(row["hrr_dim"])
        full, small = weights(features, labels), weights(features, dim)
        found: dict[str, Any] = {"dataset": name, "features": features, "labels": labels, "dim": dim}
        for scope, before, after in zip(SCOPES, full, small, strict=True):
            found |= {f"{scope}_fc": before, f"{scope}_hrr": after, f"{scope}_percent": saved(before, after)}
            if name in papers:
                paper = float(papers[name]["output_layer_percent" if scope == "output" else "network_percent"])
                found |= {f"{scope}_paper": paper, f"{scope}_equal": found[f"{scope}_percent"] == paper}
        rows.append(found)
    equal = {scope: sum(row.get(f"{scope}_equal", False) for row in rows) for scope in SCOPES}
    return result.save(
        out,
        "compression",
        None,
        started,
        seed=seed,
        quick=quick,
        title="Compression (table 2)",
        summary=f"output layer: {equal['output']} of {len(papers)} percentages equal the paper's; network: "
        f"{equal['network']} of {len(papers)}; the others do not follow from the paper's own sizes",
        notes=_notes(rows),
        table=_table(rows),
        rows=rows,
    )


def saved(before: int, after: int) -> float:
    """The percentage of weights saved, truncated after two digits as in the paper: 59.308 is 59.30."""
    return 10_000 * (before - after) // before / 100


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["dataset", "labels", "d'", "FC, million weights", "HRR-FC, million weights"]
    header += ["output saved, paper / ours, %", "network saved, paper / ours, %", "the paper agrees with its sizes"]
    lines = []
    for row in rows:
        agrees = [row[f"{scope}_equal"] for scope in SCOPES if f"{scope}_equal" in row]
        verdict = "" if not agrees else "yes" if all(agrees) else "in the output only" if agrees[0] else "no"
        both = [
            f"{row[f'{scope}_paper']:.2f} / {row[f'{scope}_percent']:.2f}"
            if f"{scope}_paper" in row
            else f"{row[f'{scope}_percent']:.2f}"
            for scope in SCOPES
        ]
        sizes = f"{row['labels']:,}", row["dim"], *(f"{row[f'network_{net}'] / 1e6:.2f}" for net in ("fc", "hrr"))
        lines.append([row["dataset"], *sizes, *both, verdict])
    return result.table(header, lines)


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    larger = [row["dataset"] for row in rows if row["dim"] > row["labels"]]
    notes = [
        "Percentages are the fraction of weights saved, truncated after two digits as in the paper.",
        f"{', '.join(larger)}: d' is larger than the number of labels, so the paper's d' makes the layer larger; the "
        "paper's table leaves them out.",
    ]
    if different := [row for row in rows if not row.get("network_equal", True)]:
        values = "; ".join(
            f"{row['dataset']} {row['network_paper']:.2f} in the paper, {row['network_percent']:.2f} by its sizes"
            for row in different
        )
        notes.append(
            "Network: the formula gives the paper's other percentages to the last digit, but not these: " + values + "."
        )
    if different := [row for row in rows if not row.get("output_equal", True)]:
        values = "; ".join(
            f"{row['dataset']} {row['output_paper']:.2f} in the paper, 1 - {row['dim']} / {row['labels']} is "
            f"{row['output_percent']:.2f}"
            for row in different
        )
        notes.append(f"Output layer: {values}.")
    return notes
