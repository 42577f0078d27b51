"""Vector-symbolic architectures: one small contract, four systems.

system.random(n, d, generator) -> (n, d)        symbols
system.bind(a, b)                               a pair
system.unbind(s, b)                             what was bound with b in s, with noise
system.bundle(stack)                            (*batch, n, d) -> (*batch, d), a set of pairs
system.similarity(a, b)                         cosine

S = system.bundle(system.bind(x, y))
system.similarity(system.unbind(S, y[i]), x[i])   is larger than to any other symbol, up to a capacity
"""

from dataclasses import dataclass
from math import isqrt
from typing import Literal, Protocol

import torch
from torch import Tensor

from holobind import algebra
from holobind.errors import OptionError, ShapeError


class VSA(Protocol):
    """What every system can do."""

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor: ...
    def bind(self, a: Tensor, b: Tensor) -> Tensor: ...
    def unbind(self, s: Tensor, b: Tensor) -> Tensor: ...
    def invert(self, b: Tensor) -> Tensor: ...
    def bundle(self, stack: Tensor) -> Tensor: ...
    def similarity(self, a: Tensor, b: Tensor) -> Tensor: ...


class _Summed:
    """Bundling by sum and similarity by cosine, which all systems but MAP-C share."""

    def bundle(self, stack: Tensor) -> Tensor:
        return stack.sum(-2)

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.similarity(a, b)


@dataclass(frozen=True)
class HRR(_Summed):
    """Plate's system: N(0, 1/d) symbols and circular convolution.

    inverse="exact" divides by the key's spectrum, as in the paper's naive curve: noise explodes where the key
    is weak. inverse="approximate" multiplies by its conjugate, as Plate advised.
    """

    inverse: Literal["exact", "approximate"] = "exact"

    def __post_init__(self) -> None:
        _check_inverse(self)

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        return algebra.random(n, d, generator)

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(a, b)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(s, self.invert(b)) if self.inverse == "exact" else algebra.unbind(s, b)

    def invert(self, b: Tensor) -> Tensor:
        return algebra.inverse(b) if self.inverse == "exact" else algebra.involution(b)


@dataclass(frozen=True)
class UnitaryHRR(_Summed):
    """The paper's system: symbols projected to be unitary, so that the approximate inverse is exact."""

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        return algebra.unitary(algebra.random(n, d, generator))

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(a, b)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        return algebra.unbind(s, b)

    def invert(self, b: Tensor) -> Tensor:
        return algebra.involution(b)


@dataclass(frozen=True)
class VTB(_Summed):
    """Vector-derived transformation binding (Gosmann and Eliasmith 2019), for d = m * m.

        bind(a, b)   = sqrt(m) A B^T           A, B: the vectors as m x m matrices, row by row
        unbind(s, b) = sqrt(m) S B

    The block-diagonal matrix of the definition is never formed: both are one batched m x m product.
    """

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        _side(d)
        return algebra.random(n, d, generator)

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        A, B, scale = self._matrices(a, b)
        return (A @ B.mT * scale).flatten(-2)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        S, B, scale = self._matrices(s, b)
        return (S @ B * scale).flatten(-2)

    def invert(self, b: Tensor) -> Tensor:
        m = _side(b.shape[-1])
        return b.unflatten(-1, (m, m)).mT.flatten(-2)

    def _matrices(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_lengths(self, a, b)
        m = _side(a.shape[-1])
        return a.unflatten(-1, (m, m)), b.unflatten(-1, (m, m)), m**0.5


@dataclass(frozen=True)
class MAPC:
    """Continuous multiply-add-permute (Gayler 1998): uniform symbols in [-1, 1], element-wise product.

    What leaves [-1, 1] is clipped back: bundles, and answers under inverse="exact", which divides by the key
    and is what the paper's curve shows. inverse="approximate" multiplies by the key, as is usual, and holds
    about twice as many pairs. Division by an element that is exactly 0 answers 0.
    """

    inverse: Literal["exact", "approximate"] = "exact"

    def __post_init__(self) -> None:
        _check_inverse(self)

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        if n < 0 or d < 1:
            raise OptionError(f"MAPC: wants n >= 0 and d >= 1, got n={n}, d={d}")
        return torch.rand(n, d, generator=generator) * 2 - 1

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        _check_lengths(self, a, b)
        return a * b

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        _check_lengths(self, s, b)
        answer = s * self.invert(b)
        return answer.clamp(-1, 1) if self.inverse == "exact" else answer

    def invert(self, b: Tensor) -> Tensor:
        if self.inverse == "approximate":
            return b
        return torch.where(b == 0, 0, torch.where(b == 0, 1, b).reciprocal())

    def bundle(self, stack: Tensor) -> Tensor:
        return stack.sum(-2).clamp(-1, 1)

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.similarity(a, b)


def _check_inverse(system: HRR | MAPC) -> None:
    if system.inverse not in ("exact", "approximate"):
        name = type(system).__name__
        raise OptionError(f"{name}: inverse must be 'exact' or 'approximate', got {system.inverse!r}")


def _check_lengths(system: VTB | MAPC, a: Tensor, b: Tensor) -> None:
    if a.shape[-1:] != b.shape[-1:]:
        raise ShapeError(
            f"{type(system).__name__}: the vectors differ in length; shapes {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _side(d: int) -> int:
    m = isqrt(max(d, 0))
    if m * m != d or m == 0:
        raise ShapeError(
            f"VTB: d must be a perfect square, got {d}; the nearest are {max(m, 1) ** 2} and {(m + 1) ** 2}"
        )
    return m
