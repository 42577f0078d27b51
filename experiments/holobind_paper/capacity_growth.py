"""How the capacity of a vector grows with d, and by how much the projection lowers errors, with intervals.

The paper's capacity figure has 10 trials on a coarse grid. Here the capacity n(d) at 3 % errors is interpolated between
grid points, with more trials, and the exponent b of n = a d^b is fitted; intervals are from resampled trials.
"""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from holobind_paper import result
from holobind_paper.capacity import MAX_ERROR_RATE
from holobind_paper.retrieval_error import error_rates

SYSTEMS = ("HRR", "HRR, approximate inverse", "HRR w/ Proj", "VTB", "MAP-C")
DIMENSIONS, QUICK_DIMENSIONS = (256, 484, 1024, 2025), (256, 484)
GRID = (1, 2, 3, *(round(4 * 2 ** (k / 2)) for k in range(12)))  # to 181
# The pair of a dimension and a number of pairs with the largest ratio of errors in the paper's error figure, with
# fewer than half of the queries wrong without the projection.
RATIO_POINTS = ((1024, 32), (2025, 64), (4096, 96), (8100, 192))
TRIALS, RESAMPLES, QUICK_RESAMPLES = 100, 1000, 200
LEVEL = 0.95


def run(out: Path, seed: int = 0, quick: bool = False, trials: int = TRIALS) -> dict[str, Any]:
    """Measure errors around the capacity of every system, fit its growth, and the ratio of errors at a few points."""
    started = time.monotonic()
    trials = min(trials, 20) if quick else trials
    dimensions = QUICK_DIMENSIONS if quick else DIMENSIONS
    points = RATIO_POINTS[:1] if quick else RATIO_POINTS
    draws = np.random.default_rng(seed)
    rows, curves = [], {}
    with result.progress("capacity growth", len(SYSTEMS) * len(dimensions) + len(points)) as advance:
        for name in SYSTEMS:
            for d in dimensions:
                curves[name, d] = error_curve(name, d, seed, trials)
                advance()
            rows.append({"vsa": name, **growth(name, dimensions, curves, draws, quick)})
        ratios = []
        for d, n in points:
            ratios.append({"d": d, "n": n, **error_ratio(d, n, seed, trials, draws, quick)})
            advance()
    parity = capacity_ratio("VTB", "HRR w/ Proj", dimensions, curves, draws, quick)
    return result.save(
        out,
        "capacity-growth",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=trials,
        title="Growth of capacity (appendix)",
        summary="; ".join(f"{row['vsa']}: n grows as d^{_interval(row['exponent'])}" for row in rows),
        notes=[
            "The capacity is the n, interpolated on a logarithmic grid, at which 3 % of the pairs are retrieved "
            f"wrongly, in {trials} trials for each d and n. The exponent b of n = a d^b is fitted by least squares; "
            f"1 is linear growth. Intervals of {LEVEL:.0%} are from resampled trials.",
            f"VTB holds {_interval(parity)} times as many pairs as projected HRR (geometric mean over d).",
            "Errors without the projection (exact inverse) divided by errors with it, with Wilson's lower bound where "
            "no error is seen with it: "
            + "; ".join(
                f"d = {row['d']}, n = {row['n']}: {row['naive errors']:,} and {row['projected errors']:,} errors in "
                f"{row['queries']:,} queries, ratio {_interval(row['ratio'])}"
                for row in ratios
            )
            + ".",
        ],
        table=result.table(
            ["system", *(f"n at d = {d}" for d in dimensions), "exponent"],
            [
                [row["vsa"], *(f"{row['capacity'][str(d)]:.1f}" for d in dimensions), _interval(row["exponent"])]
                for row in rows
            ],
        ),
        rows=rows,
        parity=parity,
        ratios=ratios,
    )


def error_curve(name: str, d: int, seed: int, trials: int) -> dict[int, list[float]]:
    """Error rates of all trials for rising n, until the mean is over 12 %: beyond that no interpolation needs it."""
    found: dict[int, list[float]] = {}
    for n in GRID:
        found[n] = error_rates(name, d, n, seed + 1, trials)
        if sum(found[n]) / trials > 4 * MAX_ERROR_RATE:
            break
    return found


def interpolated(curve: dict[int, float]) -> float:
    """The n at which the error crosses 3 %, by interpolation in log n; below the grid, its smallest n."""
    sizes = sorted(curve)
    below = [n for n in sizes if curve[n] <= MAX_ERROR_RATE]
    if not below:
        return float(sizes[0])
    low = below[-1]
    above = [n for n in sizes if n > low]
    if not above:
        return float(low)
    high = above[0]
    share = (MAX_ERROR_RATE - curve[low]) / (curve[high] - curve[low])
    return math.exp(math.log(low) + float(share) * math.log(high / low))


def growth(
    name: str, dimensions: tuple[int, ...], curves: dict[Any, Any], draws: np.random.Generator, quick: bool
) -> dict[str, Any]:
    """The capacities at all d, and the exponent of their growth with its interval."""
    resampled = _resampled([curves[name, d] for d in dimensions], draws, quick)
    slopes = [_slope(dimensions, capacities) for capacities in resampled]
    capacities = [interpolated({n: float(np.mean(r)) for n, r in curves[name, d].items()}) for d in dimensions]
    exponent = {"value": _slope(dimensions, capacities), **_percentiles(slopes)}
    return {"capacity": {str(d): n for d, n in zip(dimensions, capacities, strict=True)}, "exponent": exponent}


def capacity_ratio(
    one: str,
    other: str,
    dimensions: tuple[int, ...],
    curves: dict[Any, Any],
    draws: np.random.Generator,
    quick: bool,
) -> dict[str, float]:
    """The geometric mean over d of the ratio of two systems' capacities, with its interval."""
    pairs = zip(
        _resampled([curves[one, d] for d in dimensions], draws, quick),
        _resampled([curves[other, d] for d in dimensions], draws, quick),
        strict=True,
    )
    ratios = [math.exp(float(np.mean(np.log(np.array(a) / np.array(b))))) for a, b in pairs]
    return {"value": float(np.median(ratios)), **_percentiles(ratios)}


def error_ratio(d: int, n: int, seed: int, trials: int, draws: np.random.Generator, quick: bool) -> dict[str, Any]:
    """Errors with the exact inverse and without the projection, divided by errors with it."""
    naive, projected = (np.array(error_rates(name, d, n, seed + 2, trials)) for name in ("HRR", "HRR w/ Proj"))
    queries = n * trials
    counts = round(float(naive.sum()) * n), round(float(projected.sum()) * n)
    index = draws.integers(trials, size=(QUICK_RESAMPLES if quick else RESAMPLES, trials))
    top, bottom = naive[index].mean(1), projected[index].mean(1)
    most = wilson_upper(counts[1], queries)  # of the error rate with the projection
    ratios = top / np.maximum(bottom, 1 / queries)
    value = counts[0] / max(counts[1], 1)
    low = min(float(np.percentile(ratios, 50 * (1 - LEVEL))), float(naive.mean()) / most)
    high = float(np.percentile(ratios, 100 - 50 * (1 - LEVEL))) if counts[1] else math.inf
    return {
        "queries": queries,
        "naive errors": counts[0],
        "projected errors": counts[1],
        "ratio": {"value": value, "low": low, "high": min(high, 1e6)},
    }


def wilson_upper(errors: int, queries: int, z: float = 1.96) -> float:
    """The upper end of Wilson's interval of a rate."""
    rate = errors / queries
    centre = rate + z * z / (2 * queries)
    spread = z * math.sqrt(rate * (1 - rate) / queries + z * z / (4 * queries**2))
    return (centre + spread) / (1 + z * z / queries)


def _resampled(curves: list[dict[int, list[float]]], draws: np.random.Generator, quick: bool) -> list[list[float]]:
    """The capacities at all d, for trials drawn again with replacement."""
    found = []
    for _ in range(QUICK_RESAMPLES if quick else RESAMPLES):
        capacities = []
        for curve in curves:
            means = {n: float(np.mean(np.array(r)[draws.integers(len(r), size=len(r))])) for n, r in curve.items()}
            capacities.append(interpolated(means))
        found.append(capacities)
    return found


def _slope(dimensions: tuple[int, ...], capacities: list[float]) -> float:
    return float(np.polyfit(np.log(dimensions), np.log(capacities), 1)[0])


def _percentiles(values: list[float]) -> dict[str, float]:
    low, high = np.percentile(values, [50 * (1 - LEVEL), 100 - 50 * (1 - LEVEL)])
    return {"low": float(low), "high": float(high)}


def _interval(found: dict[str, float]) -> str:
    digits = 2 if found["value"] < 20 else 0
    return f"{found['value']:.{digits}f} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"
