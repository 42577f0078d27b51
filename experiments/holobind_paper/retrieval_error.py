"""The paper's appendix figure: how often a distractor is more similar than the true vector, by n and d.

n pairs are bound and summed, S = sum_i bind(x_i, y_i). Every y_i is unbound, and the result is compared with x_i and
with n distractors z_j, drawn like x and y. One z_j that is more similar than x_i makes it an error.
"""

import time
from pathlib import Path
from typing import Any

from holobind.symbols.vsa import HRR, MAPC, VSA, VTB, UnitaryHRR
from holobind_paper import published, result

SYSTEMS: dict[str, VSA] = {
    "HRR": HRR(inverse="exact"),
    "HRR, approximate inverse": HRR(inverse="approximate"),
    "HRR w/ Proj": UnitaryHRR(),
    "VTB": VTB(),
    "MAP-C": MAPC(inverse="exact"),
    "MAP-C, approximate inverse": MAPC(inverse="approximate"),
}
IN_PAPER = ("HRR", "HRR w/ Proj", "VTB", "MAP-C")
COLOURS = dict(zip(SYSTEMS, ("tab:red", "tab:pink", "tab:orange", "tab:blue", "tab:green", "tab:olive"), strict=True))
DIMENSIONS = (25, 64, 121, 256, 484, 1024, 2025, 4096, 8100)
PAIRS = (8, 12, 16, 24, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2056)
QUICK_DIMENSIONS, QUICK_PAIRS = DIMENSIONS[:6], PAIRS[:10]
TRIALS = 10  # as in the paper
QUERIES_PER_BLOCK = 1024  # unbound vectors that are compared with all distractors at once


def error_rates(name: str, d: int, n: int, seed: int, trials: int = TRIALS) -> list[float]:
    """The fraction of the n pairs that are retrieved wrongly, for each trial."""
    system = SYSTEMS[name]
    rates = []
    for trial in range(trials):
        generator = result.generator(seed, name, d, n, trial)
        x, y, z = (system.random(n, d, generator) for _ in range(3))
        statement = system.bundle(system.bind(x, y))
        errors = 0
        for i in range(0, n, QUERIES_PER_BLOCK):
            unbound = system.unbind(statement, y[i : i + QUERIES_PER_BLOCK])
            to_truth = system.similarity(unbound, x[i : i + QUERIES_PER_BLOCK])
            to_distractors = system.similarity(unbound[:, None], z)
            errors += int((to_truth < to_distractors.amax(-1)).sum())
        rates.append(errors / n)
    return rates


def run(out: Path, seed: int = 0, quick: bool = False, trials: int = TRIALS) -> dict[str, Any]:
    """Measure every system at every d and n, next to the paper's figure."""
    started = time.monotonic()
    dimensions, pairs = (QUICK_DIMENSIONS, QUICK_PAIRS) if quick else (DIMENSIONS, PAIRS)
    rows: list[dict[str, Any]] = []
    with result.progress("retrieval error", len(SYSTEMS) * len(dimensions) * len(pairs)) as advance:
        for d in dimensions:
            for name in SYSTEMS:
                for n in pairs:
                    rates = error_rates(name, d, n, seed, trials)
                    rows.append({"vsa": name, "d": d, "n": n, **_mean_and_std(rates)})
                    advance()
    papers = {(row["vsa"], int(row["d"]), int(row["n"])): row for row in published.read("figure_retrieval_error")}
    within = []
    for row in rows:
        if row["vsa"] in IN_PAPER:
            paper = papers[row["vsa"], row["d"], row["n"]]
            row["paper_mean"], row["paper_std"] = float(paper["p_error_mean"]), float(paper["p_error_std"])
            within.append(abs(row["mean"] - row["paper_mean"]) <= 3 * row["paper_std"] + 0.05)
    agreement = {"points": len(within), "within_3_std_plus_0.05": sum(within), "fraction": sum(within) / len(within)}
    return result.save(
        out,
        "retrieval-error",
        draw(rows),
        started,
        seed=seed,
        quick=quick,
        trials=trials,
        agreement=agreement,
        rows=rows,
    )


def _mean_and_std(rates: list[float]) -> dict[str, float]:
    mean = sum(rates) / len(rates)
    return {"mean": mean, "std": (sum((rate - mean) ** 2 for rate in rates) / len(rates)) ** 0.5}


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    dimensions = sorted({row["d"] for row in rows})
    lines = (len(dimensions) + 2) // 3
    figure = Figure(figsize=(12, 4 * lines), layout="constrained")
    for place, d in enumerate(dimensions, 1):
        axes = figure.add_subplot(lines, 3, place)
        for name in SYSTEMS:
            curve = [row for row in rows if row["vsa"] == name and row["d"] == d]
            n = [row["n"] for row in curve]
            axes.plot(n, [row["mean"] for row in curve], color=COLOURS[name], label=name)
            if "paper_mean" in curve[0]:
                paper, spread = [row["paper_mean"] for row in curve], [row["paper_std"] for row in curve]
                axes.errorbar(n, paper, spread, color=COLOURS[name], fmt="x", ms=4, lw=1)
        axes.axhline(0.03, color="grey", lw=0.8, ls=":")
        axes.set(xscale="log", title=f"d = {d}", xlabel="n, pairs in one vector", ylabel="retrieval error, fraction")
    figure.axes[0].errorbar([], [], [], color="black", fmt="x", ms=4, label="the paper, mean ± one std")
    figure.axes[0].plot([], [], color="grey", lw=0.8, ls=":", label="3 % errors")
    figure.axes[0].legend(fontsize=7)
    return figure
