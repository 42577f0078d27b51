"""Vectors of the head that are fixed in the paper, compared with trained ones: what both tables of it share."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, result, training
from holobind_paper.training import Job

Sizes = Sequence[tuple[int, int]]  # hidden units and d'


def run(
    out: Path,
    name: str,
    trainable: Sequence[str],
    among: Sequence[str],
    sizes: Callable[[str], Sizes],
    *,
    seed: int,
    quick: bool,
    data: Path | None,
    only: Sequence[str] | None,
    title: str,
    notes: list[str],
    paper: Mapping[tuple[int, int], tuple[float, float]] | None = None,
    with_figure: bool = False,
) -> dict[str, Any]:
    """Train all `sizes` with fixed vectors and with the vectors in `trainable` learned, with the same seeds."""
    started = time.monotonic()
    cases = [
        (source, hidden, dim)
        for source in training.pick(data, only, quick, among)
        for hidden, dim in (sizes(source.name)[:2] if quick else sizes(source.name))
    ]
    jobs = []
    for source, hidden, dim in cases:
        shape = {"hidden": (hidden, hidden)}
        jobs.append(Job(source, f"fixed {hidden} {dim}", training.hrr_fc(dim, **shape)))
        jobs.append(Job(source, f"learned {hidden} {dim}", training.hrr_fc(dim, **shape, trainable=tuple(trainable))))
    trained = training.finish(out, name, jobs, seed, quick)
    rows = []
    for source, hidden, dim in cases:
        fixed, learned = (training.of(trained, source.name, f"{kind} {hidden} {dim}") for kind in ("fixed", "learned"))
        row: dict[str, Any] = {"dataset": source.name, "hidden": hidden, "dim": dim, "seeds": len(fixed)}
        for k in range(1, 6):
            row[f"P@{k}"] = {"fixed": training.mean(fixed, f"P@{k}"), "learned": training.mean(learned, f"P@{k}")}
        pairs = zip(fixed, learned, strict=True)
        row["P@5 differences"] = [a["scores"]["P"][4] - b["scores"]["P"][4] for a, b in pairs]  # one for each seed
        row["parameters"] = {"fixed": fixed[0]["parameters"], "learned": learned[0]["parameters"]}
        row["paper"] = list((paper or {}).get((hidden, dim), ()))
        rows.append(row)
    return result.save(
        out,
        name,
        draw(rows, title) if with_figure else None,
        started,
        seed=seed,
        quick=quick,
        trials=max(row["seeds"] for row in rows),
        command=training.command(name, seed, quick, data, only),
        seconds=cells.seconds(trained),
        title=title,
        summary=_summary(rows),
        notes=[*notes, "Differences are fixed minus learned, means over the same seeds ± standard deviation."],
        table=_table(rows, bool(paper)),
        rows=rows,
    )


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    differences = [statistics.fmean(row["P@5 differences"]) for row in rows]
    better = sum(difference < 0 for difference in differences)
    return (
        f"P@5 with fixed vectors minus P@5 with learned ones is {min(differences):+.2f} to {max(differences):+.2f}; "
        f"learned vectors are better in {better} of {len(differences)} cases"
    )


def _table(rows: list[dict[str, Any]], paper: bool) -> list[list[str]]:
    header = ["dataset", "hidden units", "d'", "P@1 fixed / learned", "P@5 fixed / learned", "P@5 difference"]
    header += ["paper, Wiki10-31K: P@5 fixed / learned"] * paper + ["seeds"]
    lines = []
    for row in rows:
        line = [row["dataset"], row["hidden"], row["dim"]]
        line += [f"{row[metric]['fixed']:.1f} / {row[metric]['learned']:.1f}" for metric in ("P@1", "P@5")]
        differences = row["P@5 differences"]
        spread = f" ± {statistics.stdev(differences):.2f}" if len(differences) > 1 else ""
        line.append(f"{statistics.fmean(differences):+.2f}{spread}")
        if paper:
            line.append(" / ".join(f"{value:.2f}" for value in row["paper"]))
        lines.append([*line, row["seeds"]])
    return result.table(header, lines)


def draw(rows: list[dict[str, Any]], title: str) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = Figure(figsize=(4 * len(names), 3.6), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        mine = [row for row in rows if row["dataset"] == name]
        for k in (1, 3, 5):
            differences = [row[f"P@{k}"]["fixed"] - row[f"P@{k}"]["learned"] for row in mine]
            axes.plot([row["dim"] for row in mine], differences, "o-", label=f"P@{k}")
        axes.axhline(0, color="black", lw=0.8)
        axes.set(title=name, xlabel="d', dimensions of the output", ylabel="fixed minus learned, percentage points")
        axes.legend(fontsize=8)
    figure.suptitle(title)
    return figure
