"""The paper's capacity figure: how many pairs a vector of dimension d holds with at most 3 % retrieval errors."""

import time
from pathlib import Path
from typing import Any

from holobind_paper import published, result
from holobind_paper.retrieval_error import COLOURS, DIMENSIONS, PAIRS, QUICK_DIMENSIONS, SYSTEMS, TRIALS, error_rates

MAX_ERROR_RATE = 0.03


def run(out: Path, seed: int = 0, quick: bool = False, trials: int = TRIALS) -> dict[str, Any]:
    """Raise n along the grid until more than 3 % of the pairs are errors, for every system and d.

    "capacity" is the largest n with at most 3 % errors, None where even the smallest n has more. "first_above" is the
    next n of the grid, the first with more than 3 %. The paper's figure shows the latter, as its own error figure
    implies, and hence the latter is compared with it.
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
                    row["grid_steps_from_paper"] = PAIRS.index(row["first_above"]) - PAIRS.index(row["paper"])
                rows.append(row)
                advance()
    steps = [abs(row["grid_steps_from_paper"]) for row in rows if "paper" in row]
    agreement = {"points": len(steps), "equal": steps.count(0), "within_one_step": sum(step <= 1 for step in steps)}
    return result.save(
        out, "capacity", draw(rows), started, seed=seed, quick=quick, trials=trials, agreement=agreement, rows=rows
    )


def _capacity(name: str, d: int, seed: int, trials: int) -> dict[str, Any]:
    capacity = None
    for n in PAIRS:
        if sum(error_rates(name, d, n, seed, trials)) / trials > MAX_ERROR_RATE:
            return {"capacity": capacity, "first_above": n}
        capacity = n
    return {"capacity": capacity, "first_above": PAIRS[-1]}


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for name in SYSTEMS:
        curve = [row for row in rows if row["vsa"] == name]
        d = [row["d"] for row in curve]
        # Curves often coincide: later ones are thinner, so that earlier ones stay visible.
        width = 5 - 0.8 * list(SYSTEMS).index(name)
        axes.plot(d, [row["first_above"] for row in curve], color=COLOURS[name], lw=width, label=name)
        if "paper" in curve[0]:
            axes.plot(d, [row["paper"] for row in curve], "x", color=COLOURS[name])
    axes.plot([], [], "kx", label="the paper")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set(
        xlabel="d, dimensions of a vector",
        ylabel="first n, in pairs, with more than 3 % errors",
        title="Capacity of one vector",
    )
    axes.legend(fontsize=8)
    return figure
