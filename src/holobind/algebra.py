"""Holographic reduced representations on plain tensors: the last axis is the vector, the others broadcast.

Every operation is element-wise between a forward and an inverse real Fourier transform. Autograd through
torch's own transforms pays for a full complex transform in each backward pass. Here the two transforms are
each other's derivative instead, which is right because of how they are used:

    the true adjoint of rfft  is  G -> irfft(w G)     w[k] = d/2, and d at the frequencies that have no mirror
    the true adjoint of irfft is  g -> rfft(g) / w

Between the two stand only operations that treat every frequency by itself, so the real factors w and 1/w
commute with all of them and cancel. Leaving both out saves two passes and the complex transform, and as each
derivative is again one of the two transforms, derivatives of every order come out right.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from holobind._checks import integer, positive
from holobind.errors import DTypeError, ShapeError


def bind(a: Tensor, b: Tensor, *more: Tensor) -> Tensor:
    """Join vectors into one that is similar to none of them: circular convolution.

        y[k] = sum_i a[i] b[(k - i) mod d]              F(y) = F(a) F(b)

    Commutative, associative, and distributive over `bundle`. Any number of vectors takes one transform
    each and a single transform back.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
    """
    vectors, dtype = _checked("bind", a, b, *more)
    product = _spectrum(vectors[0])
    for vector in vectors[1:]:
        product = _times(product, _spectrum(vector))
    return _signal(product, a.shape[-1]).to(dtype)


def unbind(s: Tensor, key: Tensor, *more: Tensor) -> Tensor:
    """Ask `s` what was bound with `key`: circular correlation, that is, binding with `involution(key)`.

        y[k] = sum_i key[i] s[(k + i) mod d]            F(y) = F(s) conj(F(key))

    Exact for unitary keys: unbind(bind(x, key), key) = x. For other keys it is Plate's approximation; the
    exact and less stable answer is `bind(s, inverse(key))`. Several keys are unbound one after the other.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
    """
    vectors, dtype = _checked("unbind", s, key, *more)
    answer = _spectrum(vectors[0])
    for vector in vectors[1:]:
        answer = _times(answer, _conjugate(_spectrum(vector)))
    return _signal(answer, s.shape[-1]).to(dtype)


def involution(x: Tensor) -> Tensor:
    """Plate's approximate inverse: read the vector backwards from its first element.

        y[k] = x[-k mod d]                              F(y) = conj(F(x))

    It needs no transform, is stable, and for unitary vectors it is the exact inverse.

    Shapes: (*batch, d) -> (*batch, d)
    """
    _checked("involution", x)
    return x.flip(-1).roll(1, -1)


def inverse(x: Tensor) -> Tensor:
    """The exact inverse: bind(x, inverse(x)) is the identity.

        F(y) = 1 / F(x)

    It magnifies noise at every frequency where `x` is weak. At a frequency where `x` has no energy at all
    there is nothing to invert: the result has none there either (the pseudo-inverse), with gradient 0.

    Shapes: (*batch, d) -> (*batch, d)
    """
    (vector,), dtype = _checked("inverse", x)
    return _signal(_reciprocal(_spectrum(vector)), x.shape[-1]).to(dtype)


def unitary(x: Tensor) -> Tensor:
    """Move `x` to the nearest vector that unbinds exactly: the paper's projection.

        F(y)[k] = F(x)[k] / |F(x)[k]|                   every frequency has modulus 1

    Hence |y| = 1 and binding with y is an isometry. A frequency at which `x` has no energy has no phase to
    keep: it takes phase 0, with gradient 0, so the result is finite everywhere.

    Shapes: (*batch, d) -> (*batch, d)
    """
    (vector,), dtype = _checked("unitary", x)
    return _signal(_phases(_spectrum(vector)), x.shape[-1]).to(dtype)


def bundle(a: Tensor, *more: Tensor) -> Tensor:
    """Put vectors side by side in one that is similar to each of them: their sum.

    A stack of vectors in one tensor is bundled by `stack.sum(-2)`.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
    """
    vectors, dtype = _checked("bundle", a, *more)
    total = vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total.to(dtype)


def permute(x: Tensor, shift: int = 1) -> Tensor:
    """Mark a place in an order: roll the vector; `permute(x, -shift)` takes it back exactly.

        y[k] = x[(k - shift) mod d]

    Shapes: (*batch, d) -> (*batch, d)
    """
    _checked("permute", x)
    return x.roll(integer("permute", "shift", shift), -1)


def power(x: Tensor, exponent: int) -> Tensor:
    """Bind `x` with itself `exponent` times.

        F(y) = F(x) ** exponent

    power(x, 0) is the identity; negative exponents are powers of `inverse(x)`.

    Shapes: (*batch, d) -> (*batch, d)
    """
    times = integer("power", "exponent", exponent)
    (vector,), dtype = _checked("power", x)
    if times < 0:
        return power(inverse(vector), -times).to(dtype)
    square = _spectrum(vector)
    product = torch.ones_like(square)
    while times:  # by squaring: torch's complex power goes through the logarithm and loses digits
        if times & 1:
            product = product * square
        times >>= 1
        if times:
            square = square * square
    return _signal(product, x.shape[-1]).to(dtype)


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """How much two vectors point the same way: their cosine, from -1 to 1.

        y = <a, b> / (|a| |b|)

    A zero vector points nowhere: its similarity to anything is 0, with gradient 0. Leading axes broadcast
    without a copy, so `similarity(x[:, None], y)` costs one matrix product.

    Shapes: (*batch, d), (*batch, d) -> (*batch)
    """
    (a, b), dtype = _checked("similarity", a, b)
    return torch.einsum("...d,...d->...", _direction(a), _direction(b)).to(dtype)


def identity(d: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Tensor:
    """The vector that changes nothing it is bound with: 1, 0, 0, ..., 0.

    Shapes: -> (d)
    """
    one = torch.zeros(positive("identity", "d", d), dtype=dtype, device=device)
    one[0] = 1
    return one


def random(
    n: int,
    d: int,
    generator: torch.Generator | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw `n` symbols, each element from N(0, 1/d), so that a symbol's expected square norm is 1.

    `unitary(random(n, d))` is the paper's initialisation. Without a generator, torch's global one is used.

    Shapes: -> (n, d)
    """
    shape = (positive("random", "n", n, minimum=0), positive("random", "d", d))
    return torch.randn(shape, generator=generator, dtype=dtype, device=device) * d**-0.5


# Inside: the two transforms, and what stands between them.


class _Spectrum(Function):
    """rfft along the last axis, with irfft as its derivative (see the top of this file)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.d = x.shape[-1]
        return _rfft(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _signal(grad, ctx.d)


class _Signal(Function):
    """irfft along the last axis, with rfft as its derivative (see the top of this file)."""

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor, d: int) -> Tensor:
        return _irfft(spectrum, d)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _spectrum(grad), None


class _Times(Function):
    """The product of two spectra, with a derivative that allocates less than autograd's."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return _conj_times(b, grad, a) if needed[0] else None, _conj_times(a, grad, b) if needed[1] else None


class _Phases(Function):
    """F -> F / |F|, with a derivative several times faster than autograd's.

    Only the part of a gradient across F turns its phase: dF -> i U Im(conj(U) dF) / |F|.
    """

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor) -> Tensor:
        scale = _inverse_modulus(spectrum)
        ctx.save_for_backward(spectrum, scale)
        return _phases_by_definition(spectrum, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        spectrum, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # a derivative of this derivative is wanted
            scale = _inverse_modulus(spectrum)
        phases = spectrum * scale
        return phases * (1j * ((phases.conj() * grad).imag * scale))


def _rfft(x: Tensor) -> Tensor:
    if x.numel() == 0:  # a batch of none, which MKL's transforms refuse
        return x.new_zeros(*x.shape[:-1], x.shape[-1] // 2 + 1).to(x.dtype.to_complex())
    return torch.fft.rfft(x)


def _irfft(spectrum: Tensor, d: int) -> Tensor:
    if spectrum.numel() == 0:
        return spectrum.real.new_zeros(*spectrum.shape[:-1], d)
    return torch.fft.irfft(spectrum, n=d)


def _eager() -> bool:
    """Whether tensors are what they seem: torch.compile and torch.func hand over stand-ins."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def _tracked(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _spectrum(x: Tensor) -> Tensor:
    return _Spectrum.apply(x) if _tracked(x) and _eager() else _rfft(x)


def _signal(spectrum: Tensor, d: int) -> Tensor:
    return _Signal.apply(spectrum, d) if _tracked(spectrum) and _eager() else _irfft(spectrum, d)


def _phases(spectrum: Tensor) -> Tensor:
    if not _eager():
        return _phases_by_definition(spectrum, _inverse_modulus(spectrum))
    if _tracked(spectrum):
        return _Phases.apply(spectrum)
    modulus = spectrum.abs()
    if spectrum.is_cpu and spectrum.numel() and modulus.amin() >= torch.finfo(modulus.dtype).tiny:
        return spectrum.mul_(modulus.reciprocal_())  # nothing is empty, as usual, and nothing else will read it
    return _phases_by_definition(spectrum, _inverse_modulus(spectrum))


def _phases_by_definition(spectrum: Tensor, scale: Tensor) -> Tensor:
    return spectrum * scale + (scale == 0)


def _times(product: Tensor, factor: Tensor) -> Tensor:
    # Both spectra are ours; where nothing else will read `product` it is overwritten, which saves the
    # allocation of a third and up to a third of the time.
    if not _eager():
        return product * factor
    if _tracked(product, factor):
        return _Times.apply(product, factor)
    return product.mul_(factor) if _covers(product, factor) else product * factor


def _conjugate(spectrum: Tensor) -> Tensor:
    return spectrum.conj() if _tracked(spectrum) or not _eager() else spectrum.conj_physical_()


def _conj_times(factor: Tensor, grad: Tensor, like: Tensor) -> Tensor:
    """conj(factor) * grad, summed over the axes along which `like` was broadcast."""
    if torch.is_grad_enabled() or not _eager() or not _covers(factor, grad):
        product = factor.conj() * grad
    else:
        product = torch.conj_physical(factor).mul_(grad)
    return product.sum_to_size(like.shape)


def _covers(a: Tensor, b: Tensor) -> bool:
    """Whether a * b has the shape and type of a."""
    if a.dtype != b.dtype:
        return False
    return a.shape == b.shape or torch.broadcast_shapes(a.shape, b.shape) == a.shape


def _inverse_modulus(spectrum: Tensor) -> Tensor:
    """1 / |F|, and 0 where there is no energy: below the smallest normal number no phase can be trusted."""
    modulus = spectrum.abs()
    return torch.where(modulus < torch.finfo(modulus.dtype).tiny, torch.inf, modulus).reciprocal()


def _reciprocal(spectrum: Tensor) -> Tensor:
    scale = _inverse_modulus(spectrum)
    return spectrum.conj() * scale * scale


def _direction(x: Tensor) -> Tensor:
    # Dividing by the largest element first keeps the squares of huge and tiny vectors in range. It is a
    # constant to autograd, which is right: a direction does not change with the length.
    largest = torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=-1, keepdim=True)
    x = x / torch.where(largest == 0, 1, largest)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.where(largest == 0, torch.inf, length).reciprocal()


def _checked(operation: str, *vectors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """The vectors in a type that transforms can compute in, and the type of the result."""
    if _usual(vectors):
        return vectors, torch.float32
    for vector in vectors:
        if not isinstance(vector, Tensor):
            raise DTypeError(f"{operation}: wants torch tensors, got {type(vector).__name__}")
        if not vector.is_floating_point():
            raise DTypeError(f"{operation}: wants real floating-point vectors, got {vector.dtype}; use .float()")
        if vector.ndim == 0 or vector.shape[-1] == 0:
            raise ShapeError(
                f"{operation}: wants vectors along the last axis, got shape {tuple(vector.shape)}, which has none"
            )
        if vector.shape[-1] != vectors[0].shape[-1]:
            raise ShapeError(
                f"{operation}: the vectors differ in length, {vectors[0].shape[-1]} and {vector.shape[-1]}; "
                f"all must have one last dimension (shapes {[tuple(v.shape) for v in vectors]})"
            )
    dtype = vectors[0].dtype
    for vector in vectors[1:]:
        dtype = torch.promote_types(dtype, vector.dtype)
    wide = torch.promote_types(dtype, torch.float32)  # half precision has no transform on the CPU
    return tuple(vector.to(wide) for vector in vectors), dtype


def _usual(vectors: tuple[Tensor, ...]) -> bool:
    """Whether nothing needs checking or converting; at small sizes the full checks are half the time of a bind."""
    if not all(isinstance(vector, Tensor) and vector.dtype == torch.float32 for vector in vectors):
        return False
    length = vectors[0].shape[-1:]
    return bool(length) and length[0] > 0 and all(vector.shape[-1:] == length for vector in vectors)
