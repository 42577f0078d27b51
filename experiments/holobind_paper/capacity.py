"""The paper's capacity figure: how many pairs a vector of d numbers holds at no more than 3 % retrieval errors."""

import time
from pathlib import Path
from typing import Any

from holobind_paper import published, result
from holobind_paper.retrieval_error import COLOURS, DIMENSIONS, PAIRS, QUICK_DIMENSIONS, SYSTEMS, TRIALS, error_rates

THRESHOLD = 0.03


def run(out: Path, seed: int = 0, quick: bool = False, trials: int = TRIALS) -> dict[str, Any]:
    """Raise n along the grid until the errors pass 3 %, for every system and d, beside the paper's figure.

    "holds" is the largest n with at most 3 % errors, None where even the smallest n has more. "passes" is the next
    n, the first with more: this is what the paper's figure shows, as its own error figure tells, and hence what is
    compared. The two differ by one step of the grid.
    """
    started = time.monotonic()
    dimensions = QUICK_DIMENSIONS if quick else DIMENSIONS
    paper = {(row["vsa"], int(row["d"])): int(row["capacity_n"]) for row in published.read("figure_capacity")}
    rows: list[dict[str, Any]] = []
    with result.progress("capacity", len(SYSTEMS) * len(dimensions)) as advance:
        for d in dimensions:
            for name in SYSTEMS:
                row: dict[str, Any] = {"vsa": name, "d": d} | _capacity(name, d, seed, trials)
                if (name, d) in paper:
                    row["paper"] = paper[name, d]
                    row["steps_apart"] = PAIRS.index(row["passes"]) - PAIRS.index(row["paper"])
                rows.append(row)
                advance()
    apart = [abs(row["steps_apart"]) for row in rows if "paper" in row]
    agreement = {"points": len(apart), "equal": apart.count(0), "within_one_step": sum(step <= 1 for step in apart)}
    return result.save(
        out, "capacity", _draw(rows), started, seed=seed, quick=quick, trials=trials, agreement=agreement, rows=rows
    )


def _capacity(name: str, d: int, seed: int, trials: int) -> dict[str, Any]:
    holds = None
    for n in PAIRS:
        if sum(error_rates(name, d, n, seed, trials)) / trials > THRESHOLD:
            return {"holds": holds, "passes": n}
        holds = n
    return {"holds": holds, "passes": PAIRS[-1]}


def _draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for name in SYSTEMS:
        curve = [row for row in rows if row["vsa"] == name]
        d = [row["d"] for row in curve]
        # Curves often coincide: the later ones are thinner and let the earlier show.
        width = 5 - 0.8 * list(SYSTEMS).index(name)
        axes.plot(d, [row["passes"] for row in curve], color=COLOURS[name], lw=width, label=name)
        if "paper" in curve[0]:
            axes.plot(d, [row["paper"] for row in curve], "x", color=COLOURS[name])
    axes.plot([], [], "kx", label="the paper")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xlabel="dimension d", ylabel="first n with more than 3 % errors", title="Pairs one vector can hold")
    axes.legend(fontsize=8)
    return figure
