"""Vector-symbolic architectures: one contract (`VSA`) and four systems.

system.random(n, d, generator) -> (n, d)        random symbols
system.bind(a, b)                               a pair
system.unbind(s, b)                             the left operands a of the pairs bind(a, b) in s, with noise
system.invert(b)                                bind(s, invert(b)) unbinds b
system.bundle(stack)                            (*batch, n, d) -> (*batch, d), a set of pairs; or bundle(a, b, ...)
system.similarity(a, b)                         cosine similarity
system.commutative                              whether bind(a, b) = bind(b, a)

S = system.bundle(system.bind(x, y))
system.similarity(system.unbind(S, y[i]), x[i])   is larger than to any other symbol, up to a capacity

HRR and MAP-C commute, so a pair can be unbound by either operand. VTB does not: `unbind` takes the right operand.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from holobind import algebra
from holobind._checks import one_of, positive
from holobind.errors import OptionError, ShapeError


@runtime_checkable
class VSA(Protocol):
    """The operations of a vector-symbolic architecture."""

    @property
    def commutative(self) -> bool: ...
    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor: ...
    def bind(self, a: Tensor, b: Tensor) -> Tensor: ...
    def unbind(self, s: Tensor, b: Tensor) -> Tensor: ...
    def invert(self, b: Tensor) -> Tensor: ...
    def bundle(self, vectors: Tensor, *others: Tensor) -> Tensor: ...
    def similarity(self, a: Tensor, b: Tensor) -> Tensor: ...


class _Base:
    """Base class of most systems: commutative binding, bundling by sum, cosine similarity."""

    commutative = True

    def bundle(self, vectors: Tensor, *others: Tensor) -> Tensor:
        return algebra.bundle(vectors, *others)

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.similarity(a, b)


@dataclass(frozen=True)
class HRR(_Base):
    """Plate's holographic reduced representations: N(0, 1/d) symbols and circular convolution.

    inverse="exact" divides by the spectrum of the key, as in the paper's naive curve. It amplifies noise at
    frequencies where the key has little energy. inverse="approximate" multiplies by the conjugate, as Plate advised.
    """

    inverse: Literal["exact", "approximate"] = "exact"

    def __post_init__(self) -> None:
        one_of("HRR", "inverse", self.inverse, ("exact", "approximate"))

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        return algebra.random(n, d, generator)

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(a, b)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(s, self.invert(b)) if self.inverse == "exact" else algebra.unbind(s, b)

    def invert(self, b: Tensor) -> Tensor:
        return algebra.inverse(b) if self.inverse == "exact" else algebra.involution(b)


@dataclass(frozen=True)
class UnitaryHRR(_Base):
    """The paper's system: symbols are projected to unitary vectors, for which the approximate inverse is exact."""

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        return algebra.unitary(algebra.random(n, d, generator))

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        return algebra.bind(a, b)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        return algebra.unbind(s, b)

    def invert(self, b: Tensor) -> Tensor:
        return algebra.involution(b)


@dataclass(frozen=True)
class VTB(_Base):
    """Vector-derived transformation binding (Gosmann and Eliasmith 2019), for d = m * m.

        bind(a, b)   = sqrt(m) A B^T           A, B: the vectors as m x m matrices, row by row
        unbind(s, b) = sqrt(m) S B
        swap(s)      = S^T                     swap(bind(a, b)) = bind(b, a)

    Binding is neither commutative nor associative. The inverse is right-sided only, as in nengo-spa:

        unbind(bind(a, b), b)        recovers the left operand a
        unbind(bind(a, b), a)        is noise: a is on the wrong side
        unbind(swap(bind(a, b)), a)  recovers the right operand b

    Several keys are unbound one after the other, the outermost first: unbind(unbind(bind(bind(x, b), c), c), b).

    The block-diagonal matrix of the definition is never formed: bind and unbind are one batched m x m product.
    """

    commutative = False

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        _matrix_side(d)
        return algebra.random(n, d, generator)

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        A, B, scale = self._matrices(a, b)
        return (A @ B.mT * scale).flatten(-2)

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        """The left operands of the pairs in `s` whose right operand is `b`, with noise."""
        S, B, scale = self._matrices(s, b)
        return (S @ B * scale).flatten(-2)

    def invert(self, b: Tensor) -> Tensor:
        """The approximate right inverse: bind(bind(a, b), invert(b)) is unbind(bind(a, b), b)."""
        return _transposed(b)

    def swap(self, s: Tensor) -> Tensor:
        """Exchange the operands of every pair in `s`: swap(bind(a, b)) = bind(b, a)."""
        return _transposed(s)

    def _matrices(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_equal_lengths(self, a, b)
        m = _matrix_side(a.shape[-1])
        return a.unflatten(-1, (m, m)), b.unflatten(-1, (m, m)), m**0.5


@dataclass(frozen=True)
class MAPC(_Base):
    """MAP-C, continuous multiply-add-permute (Gayler 1998): uniform symbols in [-1, 1], element-wise product.

    Bundles are clipped to [-1, 1]. inverse="exact" divides by the key, as in the paper's curve, and clips the result
    too; division by an element that is exactly 0 gives 0. inverse="approximate" multiplies by the key, as is usual,
    and holds about twice as many pairs.
    """

    inverse: Literal["exact", "approximate"] = "exact"

    def __post_init__(self) -> None:
        one_of("MAPC", "inverse", self.inverse, ("exact", "approximate"))

    def random(self, n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
        shape = (positive("MAPC", "n", n, minimum=0), positive("MAPC", "d", d))
        return torch.rand(shape, generator=generator) * 2 - 1

    def bind(self, a: Tensor, b: Tensor) -> Tensor:
        _check_equal_lengths(self, a, b)
        return a * b

    def unbind(self, s: Tensor, b: Tensor) -> Tensor:
        _check_equal_lengths(self, s, b)
        found = s * self.invert(b)
        return found.clamp(-1, 1) if self.inverse == "exact" else found

    def invert(self, b: Tensor) -> Tensor:
        if self.inverse == "approximate":
            return b
        return torch.where(b == 0, 0, torch.where(b == 0, 1, b).reciprocal())

    def bundle(self, vectors: Tensor, *others: Tensor) -> Tensor:
        return algebra.bundle(vectors, *others).clamp(-1, 1)


# The names under which vocabularies are made and saved.
SYSTEMS: dict[str, VSA] = {
    "unitary-hrr": UnitaryHRR(),
    "hrr-exact": HRR("exact"),
    "hrr-approximate": HRR("approximate"),
    "vtb": VTB(),
    "map-c-exact": MAPC("exact"),
    "map-c-approximate": MAPC("approximate"),
}


def as_system(where: str, vsa: VSA | str) -> VSA:
    """The system of a name in `SYSTEMS`, or `vsa` itself if it is an instance of a system."""
    if isinstance(vsa, str) and vsa in SYSTEMS:
        return SYSTEMS[vsa]
    if isinstance(vsa, type) or not isinstance(vsa, VSA):
        hint = f"; did you mean {vsa.__name__}()?" if isinstance(vsa, type) and vsa.__module__ == __name__ else ""
        raise OptionError(
            f"{where}: vsa must be one of {', '.join(map(repr, SYSTEMS))}, or a VSA instance such as "
            f"holobind.vsa.VTB(); got {vsa!r:.60}{hint}"
        )
    return vsa


def _check_equal_lengths(system: VTB | MAPC, a: Tensor, b: Tensor) -> None:
    if a.shape[-1:] != b.shape[-1:]:
        raise ShapeError(
            f"{type(system).__name__}: the vectors differ in length; shapes {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _transposed(x: Tensor) -> Tensor:
    m = _matrix_side(x.shape[-1])
    return x.unflatten(-1, (m, m)).mT.flatten(-2)


def _matrix_side(d: int) -> int:
    m = isqrt(max(d, 0))
    if m * m != d or m == 0:
        raise ShapeError(
            f"VTB: d must be a perfect square, got {d}; the nearest are {max(m, 1) ** 2} and {(m + 1) ** 2}"
        )
    return m
