"""The worked algebra of the paper's appendix: its expansions at d = 2 and 3, and the variances of their terms.

    c* (x) (c (x) x) = (1 + xi) x + eta          d = 3, unbinding by the approximate inverse
    c^-1 (x) (c (x) x + a (x) b)                 d = 2, the exact inverse

All elements are from N(0, 1/d). The paper gives the variances 2/d of xi, (d - 1)/d^2 of eta, and 1/d^4 of a product of
two elements; the last should be 1/d^2.
"""

import time
from math import log10
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holobind import algebra
from holobind_paper import result

SAMPLES, QUICK_SAMPLES = 200_000, 20_000
DIMENSIONS = (4, 16, 64, 256)
TERMS = ("xi", "eta", "product, 1/d^4", "product, 1/d^2")
MAX_ELEMENTS = 10_000_000  # of a simulation: fewer samples at large d


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Compare the expansions with the definition, and simulate the variances."""
    started = time.monotonic()
    samples = QUICK_SAMPLES if quick else SAMPLES
    expansions = {
        "d = 3": -log10(largest_difference(expansion_3, 3, 2, seed)),  # correct digits
        "d = 2": -log10(largest_difference(expansion_2, 2, 4, seed)),
    }
    rows = [variances(d, min(samples, MAX_ELEMENTS // d), seed) for d in DIMENSIONS]
    return result.save(
        out,
        "appendix-algebra",
        None,
        started,
        seed=seed,
        quick=quick,
        trials=samples,
        title="The appendix's algebra",
        summary=f"the expansions at d = 2 and 3 agree with the definition to {min(expansions.values()):.0f} digits; a "
        f"product of two elements has {rows[-1]['product, 1/d^4']:,.0f} times the paper's variance "
        f"at d = {rows[-1]['d']}",
        notes=[
            "Variances by simulation, divided by the formula: 1 where it holds. xi is |c|^2 - 1, "
            "eta is what unbinding c "
            "by the approximate inverse adds to (1 + xi) x, a product is one of two elements of "
            "different vectors, such "
            "as a_i b_j.",
        ],
        table=result.table(
            [
                "d",
                *("xi: variance / (2/d)", "eta: variance / ((d-1)/d^2)"),
                *("product: variance / (1/d^4), the paper's", "product: variance / (1/d^2)"),
            ],
            [[row["d"], *(f"{row[term]:,.2f}" for term in TERMS)] for row in rows],
        ),
        rows=rows,
        expansions=expansions,
    )


def expansion_3(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's expansion of c* (x) (c (x) x) at d = 3, and the definition."""
    c0, c1, c2 = c
    x0, x1, x2 = x
    square = c0**2 + c1**2 + c2**2
    mixed = c0 * c1 + c1 * c2 + c0 * c2  # the paper's six products x_i c_j c_k are x_i times each of these
    paper = [x0 * square + (x1 + x2) * mixed, x1 * square + (x0 + x2) * mixed, x2 * square + (x0 + x1) * mixed]
    return torch.stack(paper), algebra.unbind(algebra.bind(c, x), c)


def expansion_2(c: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's expansion of c^-1 (x) (c (x) x + a (x) b) at d = 2, and the definition."""
    (c0, c1), (x0, x1), (a0, a1), (b0, b1) = c, x, a, b
    below = c0**2 - c1**2
    first = a0 * b0 * c0 - a0 * b1 * c1 - a1 * b0 * c1 + a1 * b1 * c0 + c0**2 * x0 - c1**2 * x0
    second = -a0 * b0 * c1 + a0 * b1 * c0 + a1 * b0 * c0 - a1 * b1 * c1 + c0**2 * x1 - c1**2 * x1
    statement = algebra.bind(c, x) + algebra.bind(a, b)
    return torch.stack([first, second]) / below, algebra.bind(algebra.inverse(c), statement)


def largest_difference(expansion: Any, d: int, n_vectors: int, seed: int, trials: int = 50) -> float:
    """The largest relative difference between an expansion and the definition, over random vectors."""
    largest = 0.0
    generator = torch.Generator().manual_seed(seed)
    for _ in range(trials):
        vectors = torch.randn(n_vectors, d, generator=generator, dtype=torch.float64)
        paper, defined = expansion(*vectors)
        largest = max(largest, float((paper - defined).abs().max() / defined.abs().max()))
    return max(largest, 1e-16)


def variances(d: int, samples: int, seed: int) -> dict[str, Any]:
    """The variances of xi, eta and a product of two elements by simulation, divided by the formulas."""
    generator = result.generator(seed, "appendix", d)
    c, x = (torch.randn(samples, d, generator=generator, dtype=torch.float64) / d**0.5 for _ in range(2))
    unbound = algebra.unbind(algebra.bind(c, x), c)
    xi = c.square().sum(1) - 1
    eta = unbound - (1 + xi)[:, None] * x
    of_product = float((c * x.roll(1, 1)).var())
    ratios = (float(xi.var()) / (2 / d), float(eta.var()) / ((d - 1) / d**2), of_product * d**4, of_product * d**2)
    return {"d": d, **dict(zip(TERMS, ratios, strict=True))}
