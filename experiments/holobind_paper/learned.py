"""What is gained by learning vectors of the head that the paper holds fixed: the two tables of it."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holobind_paper import cells, result, training
from holobind_paper.training import Job

Sizes = Sequence[tuple[int, int]]


def run(
    out: Path,
    name: str,
    parts: Sequence[str],
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
    picture: bool = False,
) -> dict[str, Any]:
    """Train (hidden units, d') of `sizes` with fixed vectors and with `parts` of them learned, the same seeds."""
    started = time.monotonic()
    places = [
        (source, hidden, dim)
        for source in training.pick(data, only, quick, among)
        for hidden, dim in (sizes(source.name)[:2] if quick else sizes(source.name))
    ]
    jobs = []
    for source, hidden, dim in places:
        shape = {"hidden": (hidden, hidden)}
        jobs.append(Job(source, f"fixed {hidden} {dim}", training.hrr_fc(dim, **shape)))
        jobs.append(Job(source, f"learned {hidden} {dim}", training.hrr_fc(dim, **shape, trainable=tuple(parts))))
    trained = training.finish(out, jobs, seed, quick)
    rows = []
    for source, hidden, dim in places:
        fixed, moved = (training.of(trained, source.name, f"{kind} {hidden} {dim}") for kind in ("fixed", "learned"))
        row: dict[str, Any] = {"dataset": source.name, "hidden": hidden, "dim": dim, "seeds": len(fixed)}
        for k in range(1, 6):
            row[f"P@{k}"] = {"fixed": training.mean(fixed, f"P@{k}"), "learned": training.mean(moved, f"P@{k}")}
        pairs = zip(fixed, moved, strict=True)
        row["apart"] = [a["scores"]["P"][4] - b["scores"]["P"][4] for a, b in pairs]  # fixed minus learned, by seed
        row["parameters"] = {"fixed": fixed[0]["parameters"], "learned": moved[0]["parameters"]}
        row["paper"] = list((paper or {}).get((hidden, dim), ()))
        rows.append(row)
    return result.save(
        out,
        name,
        _draw(rows, title) if picture else None,
        started,
        seed=seed,
        quick=quick,
        trials=max(row["seeds"] for row in rows),
        command=training.command(name, seed, quick, data, only),
        seconds=cells.seconds(trained),
        title=title,
        summary=told(rows),
        notes=[*notes, "Differences are fixed minus learned, means over the same seeds ± standard deviation."],
        table=_table(rows, bool(paper)),
        rows=rows,
    )


def told(rows: Sequence[dict[str, Any]]) -> str:
    """The span of differences in P@5, and in how many of them learning helped."""
    apart = [statistics.fmean(row["apart"]) for row in rows]
    helped = sum(difference < 0 for difference in apart)
    return (
        f"P@5 of fixed minus learned vectors is {min(apart):+.2f} to {max(apart):+.2f}; learning is better in {helped} "
        f"of {len(apart)} places"
    )


def _table(rows: list[dict[str, Any]], paper: bool) -> list[list[str]]:
    header = ["dataset", "hidden units", "d'", "P@1 fixed / learned", "P@5 fixed / learned", "P@5 difference"]
    header += ["paper, Wiki10-31K: P@5 fixed / learned"] * paper + ["seeds"]
    lines = []
    for row in rows:
        line = [row["dataset"], row["hidden"], row["dim"]]
        line += [f"{row[m]['fixed']:.1f} / {row[m]['learned']:.1f}" for m in ("P@1", "P@5")]
        spread = f" ± {statistics.stdev(row['apart']):.2f}" if len(row["apart"]) > 1 else ""
        line.append(f"{statistics.fmean(row['apart']):+.2f}{spread}")
        if paper:
            line.append(" / ".join(f"{value:.2f}" for value in row["paper"]))
        lines.append([*line, row["seeds"]])
    return result.table(header, lines)


def _draw(rows: list[dict[str, Any]], title: str) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = Figure(figsize=(4 * len(names), 3.6), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        mine = [row for row in rows if row["dataset"] == name]
        for k in (1, 3, 5):
            apart = [row[f"P@{k}"]["fixed"] - row[f"P@{k}"]["learned"] for row in mine]
            axes.plot([row["dim"] for row in mine], apart, "o-", label=f"P@{k}")
        axes.axhline(0, color="black", lw=0.8)
        axes.set(title=name, xlabel="d'", ylabel="fixed minus learned")
        axes.legend(fontsize=8)
    figure.suptitle(title)
    return figure
