"""The appendix figure of the responses' spread: mean and standard deviation for n = 4 to 65,536 pairs at d = 256.

In theory each of the other n - 1 pairs adds noise of variance 1/d. So the standard deviation is sqrt((n - 1) / d) for
present and sqrt(n / d) for absent pairs, and the means are 1 and 0.
"""

import time
from pathlib import Path
from typing import Any

from holobind.symbols.vsa import UnitaryHRR
from holobind_paper import published, result
from holobind_paper.response import TRIALS, D, responses

PAIRS = tuple(2**k for k in range(2, 17))


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure the responses of projected vectors, next to the paper's and to theory."""
    started = time.monotonic()
    trials = 2 if quick else TRIALS
    paper = {(row["query"].lower(), int(row["n"])): row for row in published.read("figure_response")}
    rows = []
    with result.progress("response spread", len(PAIRS)) as advance:
        for n in PAIRS:
            found = responses(UnitaryHRR(), n, trials, result.generator(seed, n))
            for kind, others in (("present", n - 1), ("absent", n)):
                papers = {f"paper_{key}": float(paper[kind, n][key]) for key in ("mean", "std")}
                rows.append({"query": kind, "n": n, **found[kind], "theory_std": (others / D) ** 0.5, **papers})
            advance()
    return result.save(
        out, "response-spread", draw(rows), started, seed=seed, quick=quick, d=D, trials=trials, rows=rows
    )


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    means, spreads = figure.subplots(1, 2)
    for kind, colour in (("present", "tab:red"), ("absent", "tab:blue")):
        curve = [row for row in rows if row["query"] == kind]
        n = [row["n"] for row in curve]
        low, high = ([row["mean"] + sign * row["std"] for row in curve] for sign in (-1, 1))
        means.fill_between(n, low, high, color=colour, alpha=0.15)
        means.plot(n, [row["mean"] for row in curve], color=colour, label=f"{kind} pairs")
        means.plot(n, [row["paper_mean"] for row in curve], "x", color=colour)
        spreads.plot(n, [row["std"] for row in curve], color=colour, label=f"{kind} pairs")
        spreads.plot(n, [row["paper_std"] for row in curve], "x", color=colour)
    spreads.plot(n, [(n_i / D) ** 0.5 for n_i in n], "k:", label="theory, sqrt(n / d)")
    for axes in (means, spreads):
        axes.plot([], [], "kx", label="the paper")
        axes.set_xscale("log", base=2)
        axes.legend(fontsize=8)
    means.set_yscale("symlog", linthresh=2)
    spreads.set_yscale("log")
    means.set(
        xlabel="n, pairs in one vector", ylabel="response (dot product), mean ± one std", title=f"Responses, d = {D}"
    )
    spreads.set(
        xlabel="n, pairs in one vector", ylabel="standard deviation of the responses", title="Spread of the responses"
    )
    return figure
