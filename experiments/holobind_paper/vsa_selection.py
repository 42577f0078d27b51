"""The four criteria by which the paper chose HRR: real vectors, differentiable operations, little overhead, capacity.

Memory is measured: the bytes that autograd keeps for the backward pass of binding and unbinding n pairs, divided by
those of the inputs. VTB is measured twice: as d/b blocks multiplied together (this library), and with the
block-diagonal matrix written out (a Kronecker product with the identity), as generic tools have it. Tensor products
(TPR) are a row of their own: binding two vectors takes d^2 numbers, binding three d^3.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holobind.symbols.vsa import HRR, MAPC, VSA, VTB, UnitaryHRR
from holobind_paper import result

D, QUICK_D = 1024, 256
PAIRS = 16
TPR_DIMENSIONS = (16, 64)
SYSTEMS: dict[str, VSA] = {"HRR w/ Proj": UnitaryHRR(), "HRR": HRR(), "VTB": VTB(), "MAP-C": MAPC()}
WRITTEN_OUT = "VTB, block matrix written out"
TPR = "TPR"


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure memory and gradients of every system."""
    started = time.monotonic()
    d = QUICK_D if quick else D
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for name, system in SYSTEMS.items():
        x, y = (system.random(PAIRS, d, generator) for _ in range(2))
        rows.append({"vsa": name, **_measured(x, y, partial(_bind_and_unbind, system))})
    x, y = (VTB().random(PAIRS, d, generator) for _ in range(2))
    rows.append(
        {"vsa": WRITTEN_OUT, **_measured(x, y, lambda a, b: _unbind_written_out(_bind_written_out(a, b).sum(0), b))}
    )
    x, y = (torch.randn(PAIRS, d, generator=generator) / d**0.5 for _ in range(2))
    rows.append({"vsa": TPR, **_measured(x, y, lambda a, b: torch.einsum("nd,ne->de", a, b) @ b.T)})
    least = min(row["memory"] for row in rows)
    for row in rows:
        row["bound"] = d * d if row["vsa"] == TPR else d
        row["memory / least"] = row["memory"] / least
    sizes: list[dict[str, Any]] = [{"d": d, "measured": _tpr_sizes(d, generator)} for d in TPR_DIMENSIONS]
    return result.save(
        out,
        "vsa-selection",
        None,
        started,
        seed=seed,
        quick=quick,
        title="Choice of the vector-symbolic architecture (appendix)",
        summary="memory for the backward pass, relative to the least: "
        + ", ".join(f"{row['vsa']} {row['memory / least']:.1f}" for row in rows),
        notes=[
            f"{PAIRS} pairs of d = {d} are bound, summed and unbound. Memory is what autograd keeps for the backward "
            "pass, divided by the bytes of the inputs. All systems have real vectors and differentiable operations; "
            "MAP-C clips, and where it clips the gradient is 0.",
            "Tensor products: "
            + "; ".join(
                f"at d = {size['d']} two bound vectors have {size['measured'][0]:,} numbers and three "
                f"{size['measured'][1]:,}"
                for size in sizes
            )
            + ".",
        ],
        table=result.table(
            ["system", "real vectors", "gradient everywhere", "numbers of a bound pair", "memory / inputs", "/ least"],
            [
                [
                    row["vsa"],
                    "yes" if row["real"] else "no",
                    "yes" if row["gradient share"] == 1 else f"at {100 * row['gradient share']:.0f} %",
                    f"{row['bound']:,}",
                    f"{row['memory']:.1f}",
                    f"{row['memory / least']:.1f}",
                ]
                for row in rows
            ],
        ),
        rows=rows,
        tensor_products=sizes,
    )


def _measured(x: Tensor, y: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """Bytes kept for the backward pass over bytes of the inputs, and the share of elements of x with a gradient."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    kept: dict[tuple[int, int], int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr(), storage.nbytes()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        found = operation(x, y)
        found.square().sum().backward()
    assert x.grad is not None and y.grad is not None
    inputs = x.untyped_storage().nbytes() + y.untyped_storage().nbytes()
    share = float((x.grad != 0).float().mean())
    return {"memory": sum(kept.values()) / inputs, "gradient share": share, "real": not found.is_complex()}


def _bind_and_unbind(system: VSA, x: Tensor, y: Tensor) -> Tensor:
    return system.unbind(system.bundle(system.bind(x, y)), y)


def _blocks(y: Tensor) -> Tensor:
    """The block-diagonal matrices of VTB, written out.  Shapes: (n, d) -> (n, d, d)"""
    side = round(y.shape[1] ** 0.5)
    matrices = y.view(len(y), side, side) * y.shape[1] ** 0.25
    return torch.stack([torch.kron(torch.eye(side), matrix) for matrix in matrices])


def _bind_written_out(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("nij,nj->ni", _blocks(y), x)


def _unbind_written_out(s: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("nji,j->ni", _blocks(y), s)


def _tpr_sizes(d: int, generator: torch.Generator) -> tuple[int, int]:
    """How many numbers the tensor product of two and of three vectors has."""
    a, b, c = (torch.randn(d, generator=generator) for _ in range(3))
    two = torch.einsum("i,j->ij", a, b)
    return two.numel(), torch.einsum("ij,k->ijk", two, c).numel()
