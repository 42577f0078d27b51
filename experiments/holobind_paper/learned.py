"""Vectors of the head that are fixed in the paper, compared with trained ones: what both tables of it share."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from holobind_paper import result, training
from holobind_paper.result import NOT_RUN
from holobind_paper.training import Found

FIXED = "fixed"


def setup_of(way: str, hidden: int, dim: int) -> str:
    return f"{way} {hidden} {dim}"


def rows_of(
    cases: Sequence[tuple[str, int, int]],
    ways: Sequence[str],
    found: Found,
    paper: Mapping[tuple[int, int], tuple[float, float]] | None = None,
) -> list[dict[str, Any]]:
    """A row for each (dataset, hidden units, d') and way to learn, compared with fixed vectors of the same seed."""
    rows = []
    for dataset, hidden, dim in cases:
        fixed = found[dataset, setup_of(FIXED, hidden, dim)]
        for way in ways:
            learned = found[dataset, setup_of(way, hidden, dim)]
            row: dict[str, Any] = {"dataset": dataset, "hidden": hidden, "dim": dim, "way": way}
            row["seeds"] = min(len(fixed), len(learned))
            row["paper"] = list((paper or {}).get((hidden, dim), ()))
            pairs = list(zip(fixed, learned, strict=False))
            for k in (1, 3, 5):
                row[f"P@{k} differences"] = [
                    training.values([a], f"P@{k}")[0] - training.values([b], f"P@{k}")[0] for a, b in pairs
                ]
                row[f"P@{k} texts"] = [training.mean_text(cells, f"P@{k}") for cells in (fixed, learned)]
            row["cos(p, m)"] = [cell["cos(p, m)"] for cell in learned if "cos(p, m)" in cell]
            rows.append(row)
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """For each way, the range of the differences over datasets and sizes."""
    text = []
    for way in dict.fromkeys(row["way"] for row in rows):
        means = [statistics.fmean(row["P@5 differences"]) for row in rows if row["way"] == way and row["seeds"]]
        if means:
            text.append(
                f"{way}: P@5 with fixed vectors minus P@5 with learned ones is {min(means):+.2f} "
                f"to {max(means):+.2f} in "
                f"{len(means)} cases"
            )
    return "; ".join(text) or NOT_RUN


def table(rows: Sequence[dict[str, Any]], paper: bool) -> list[list[str]]:
    header = ["dataset", "hidden units", "d'", "learned vectors", "P@1 fixed / learned", "P@5 fixed / learned"]
    header += ["P@5 difference", *["paper, Wiki10-31K: P@5 fixed / learned"] * paper, "seeds"]
    lines = []
    for row in rows:
        line = [row["dataset"], row["hidden"], row["dim"], row["way"]]
        line += [" / ".join(row[f"P@{k} texts"]) for k in (1, 5)]
        differences = row["P@5 differences"]
        spread = f" ± {statistics.stdev(differences):.2f}" if len(differences) > 1 else ""
        line.append(f"{statistics.fmean(differences):+.2f}{spread}" if differences else NOT_RUN)
        if paper:
            line.append(" / ".join(f"{value:.2f}" for value in row["paper"]))
        lines.append([*line, row["seeds"]])
    return result.table(header, lines)


def draw(rows: Sequence[dict[str, Any]], title: str) -> Any:
    """P@k with fixed minus with learned vectors, by d'; None where nothing is finished."""
    from matplotlib.figure import Figure

    finished = [row for row in rows if row["seeds"]]
    names = list(dict.fromkeys(row["dataset"] for row in finished))
    if not names:
        return None
    figure = Figure(figsize=(4 * len(names), 3.6), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        for way, line in zip(dict.fromkeys(row["way"] for row in finished), ("o-", "x--", "+:"), strict=False):
            mine = [row for row in finished if (row["dataset"], row["way"]) == (name, way)]
            for k, colour in ((1, "tab:blue"), (5, "tab:orange")):
                differences = [statistics.fmean(row[f"P@{k} differences"]) for row in mine]
                axes.plot([row["dim"] for row in mine], differences, line, color=colour, label=f"P@{k}, {way}")
        axes.axhline(0, color="black", lw=0.8)
        axes.set(title=name, xlabel="d', dimensions of the output", ylabel="fixed minus learned, percentage points")
        axes.legend(fontsize=7)
    figure.suptitle(title)
    return figure
