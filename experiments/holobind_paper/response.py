"""Figure 1 of the paper: the responses of S = sum_i a_i (x) b_i to queries for present and for absent pairs.

response(x, y) = x^T (S (x) y^-1)               about 1 for a present pair, about 0 for an absent pair
"""

import time
from pathlib import Path
from typing import Any

import torch

from holobind.symbols.vsa import HRR, VSA, UnitaryHRR
from holobind_paper import result

D = 256
PAIRS = tuple(2**k for k in range(11))
TRIALS = 10
PAIRS_PER_BLOCK = 4096  # pairs that are bound or unbound at once
SYSTEMS: dict[str, VSA] = {
    "naive, exact inverse": HRR(inverse="exact"),
    "naive, approximate inverse": HRR(inverse="approximate"),
    "projected": UnitaryHRR(),
}


def responses(system: VSA, n: int, trials: int, generator: torch.Generator) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of the responses to all n present pairs and to n absent pairs, over all trials."""
    collected: dict[str, list[torch.Tensor]] = {"present": [], "absent": []}
    for _ in range(trials):
        a, b = system.random(n, D, generator), system.random(n, D, generator)
        statement = torch.zeros(D)
        for i in range(0, n, PAIRS_PER_BLOCK):
            statement += system.bind(a[i : i + PAIRS_PER_BLOCK], b[i : i + PAIRS_PER_BLOCK]).sum(0)
        absent = system.random(n, D, generator), system.random(n, D, generator)
        for kind, (x, y) in {"present": (a, b), "absent": absent}.items():
            for i in range(0, n, PAIRS_PER_BLOCK):
                unbound = system.unbind(statement, y[i : i + PAIRS_PER_BLOCK])
                collected[kind].append((unbound * x[i : i + PAIRS_PER_BLOCK]).sum(-1))
    return {
        kind: {"mean": float(torch.cat(found).mean()), "std": float(torch.cat(found).std(correction=0))}
        for kind, found in collected.items()
    }


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure the responses of all three systems at d = 256 for n = 1 to 1024."""
    started = time.monotonic()
    trials = 2 if quick else TRIALS
    rows = []
    with result.progress("response", len(SYSTEMS) * len(PAIRS)) as advance:
        for name, system in SYSTEMS.items():
            for n in PAIRS:
                found = responses(system, n, trials, result.generator(seed, name, n))
                rows.append({"vsa": name, "n": n, **found})
                advance()
    return result.save(out, "response", draw(rows), started, seed=seed, quick=quick, d=D, trials=trials, rows=rows)


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(SYSTEMS), sharey=True), SYSTEMS, strict=True):
        curve = [row for row in rows if row["vsa"] == name]
        n = [row["n"] for row in curve]
        for kind, colour in (("present", "tab:orange"), ("absent", "tab:blue")):
            mean, std = ([row[kind][key] for row in curve] for key in ("mean", "std"))
            low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
            axes.fill_between(n, low, high, color=colour, alpha=0.2)
            axes.plot(n, mean, color=colour, label=f"{kind} pairs, mean ± one std")
        axes.axhline(1, color="black", lw=0.8, ls="--")
        axes.axhline(0, color="black", lw=0.8, ls=":")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks([-100, -10, -1, 0, 1, 10, 100])
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.set(xlabel="n, pairs in one vector", title=name)
    figure.axes[0].set_ylabel("response (dot product)")
    figure.axes[0].legend(fontsize=8, loc="lower left")
    figure.suptitle(f"Responses of one vector, d = {D}, to queries for present and absent pairs")
    return figure
