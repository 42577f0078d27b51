"""Holographic reduced representations on plain tensors: the last axis is the vector, the other axes broadcast.

Every operation is element-wise between a forward and an inverse real Fourier transform. Autograd through
torch's own transforms computes a full complex transform in each backward pass. Here each of the two transforms
is the derivative of the other instead. This is correct for the following reason:

    the true adjoint of rfft  is  G -> irfft(w G)     w[k] = d/2, and d at frequency 0 and, for even d, at d/2
    the true adjoint of irfft is  g -> rfft(g) / w

All operations between the two transforms act on every frequency separately, so the real factors w and 1/w
commute with them and cancel. Omitting both factors saves two passes and the complex transform. Each derivative is
again one of the two transforms, so derivatives of every order are correct.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from holobind._checks import integer, positive
from holobind.errors import DTypeError, OptionError, ShapeError


def bind(a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
    """Bind vectors by circular convolution; the result is similar to none of them.

        y[k] = sum_i a[i] b[(k - i) mod d]              F(y) = F(a) F(b)

    Binding is commutative, associative, and distributive over `bundle`. It computes one transform for each vector
    and a single inverse transform.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
    """
    vectors, dtype = _checked("bind", a, b, *others)
    product = _spectrum(vectors[0])
    for vector in vectors[1:]:
        product = _times(product, _spectrum(vector))
    return _signal(product, a.shape[-1]).to(dtype)


def unbind(s: Tensor, key: Tensor, *other_keys: Tensor) -> Tensor:
    """Recover what is bound with `key` in `s`, by circular correlation: binding with `involution(key)`.

        y[k] = sum_i key[i] s[(k + i) mod d]            F(y) = F(s) conj(F(key))

    Unbinding is exact for unitary keys: unbind(bind(x, key), key) = x. For other keys it is Plate's approximation;
    `bind(s, inverse(key))` is exact and less stable. Several keys are unbound one after the other.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
    """
    vectors, dtype = _checked("unbind", s, key, *other_keys)
    answer = _spectrum(vectors[0])
    for vector in vectors[1:]:
        answer = _times(answer, _conjugate(_spectrum(vector)))
    return _signal(answer, s.shape[-1]).to(dtype)


def involution(x: Tensor) -> Tensor:
    """Plate's approximate inverse: the elements in reverse order, except the first, which stays first.

        y[k] = x[-k mod d]                              F(y) = conj(F(x))

    It needs no transform and is numerically stable. For unitary vectors it is the exact inverse.

    Shapes: (*batch, d) -> (*batch, d)
    """
    _checked("involution", x)
    return x.flip(-1).roll(1, -1)


def inverse(x: Tensor) -> Tensor:
    """The exact inverse: bind(x, inverse(x)) is the identity.

        F(y) = 1 / F(x)

    It amplifies noise at every frequency where `x` has little energy. At a frequency where `x` has no energy the
    result is 0 as well (the pseudo-inverse), with gradient 0.

    Shapes: (*batch, d) -> (*batch, d)
    """
    (vector,), dtype = _checked("inverse", x)
    return _signal(_reciprocal(_spectrum(vector)), x.shape[-1]).to(dtype)


def unitary(x: Tensor) -> Tensor:
    """Project `x` onto the nearest vector that unbinds exactly: the paper's projection.

        F(y)[k] = F(x)[k] / |F(x)[k]|                   every frequency has modulus 1

    Hence |y| = 1 and binding with y is an isometry. A frequency at which `x` has no energy has no phase; the result
    has phase 0 there, with gradient 0, so it is finite everywhere.

    Shapes: (*batch, d) -> (*batch, d)
    """
    (vector,), dtype = _checked("unitary", x)
    return _signal(_phases(_spectrum(vector)), x.shape[-1]).to(dtype)


def bundle(vectors: Tensor, *others: Tensor) -> Tensor:
    """Bundle vectors by their sum; the result is similar to each of them.

        bundle(a, b, c) = a + b + c                     several arguments: vectors, whose leading axes broadcast
        bundle(stack)   = stack.sum(-2)                 one argument: a stack of n vectors

    A single 1-D vector is no stack and is refused. A stack of 0 vectors gives the zero vector.

    Shapes: (*batch, d), (*batch, d), ... -> (*batch, d)
            (*batch, n, d) -> (*batch, d)
    """
    summands, dtype = _checked("bundle", vectors, *others)
    total = summands[0]
    if not others:
        if total.ndim < 2:
            raise ShapeError(
                f"bundle: one argument must be a stack of shape (*batch, n, d), got a single vector of shape "
                f"{tuple(total.shape)}; give bundle several vectors or a stack"
            )
        return total.sum(-2).to(dtype)
    for vector in summands[1:]:
        total = total + vector
    return total.to(dtype)


def permute(x: Tensor, shift: int = 1) -> Tensor:
    """Permute a vector cyclically, to mark its position in a sequence; `permute(x, -shift)` is the exact inverse.

        y[k] = x[(k - shift) mod d]

    Shapes: (*batch, d) -> (*batch, d)
    """
    _checked("permute", x)
    return x.roll(integer("permute", "shift", shift), -1)


def power(x: Tensor, exponent: int) -> Tensor:
    """Bind `x` with itself `exponent` times.

        F(y) = F(x) ** exponent

    power(x, 0) is the identity. A negative exponent gives a power of `inverse(x)`.

    Shapes: (*batch, d) -> (*batch, d)
    """
    times = integer("power", "exponent", exponent)
    (vector,), dtype = _checked("power", x)
    if times < 0:
        return power(inverse(vector), -times).to(dtype)
    square = _spectrum(vector)
    product = torch.ones_like(square)
    while times:  # exponentiation by squaring: torch's complex power uses the logarithm and is less accurate
        if times & 1:
            product = product * square
        times >>= 1
        if times:
            square = square * square
    return _signal(product, x.shape[-1]).to(dtype)


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity, from -1 to 1.

        y = <a, b> / (|a| |b|)

    A zero vector has similarity 0 to every vector, with gradient 0. Leading axes broadcast without a copy, so
    `similarity(x[:, None], y)` costs one matrix product.

    Shapes: (*batch, d), (*batch, d) -> (*batch)
    """
    (a, b), dtype = _checked("similarity", a, b)
    return torch.einsum("...d,...d->...", _direction(a), _direction(b)).to(dtype)


def identity(d: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Tensor:
    """The identity of binding: 1, 0, 0, ..., 0.

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
    """Draw `n` random symbols. Each element is from N(0, 1/d), so the expected square norm of a symbol is 1.

    `unitary(random(n, d))` is the paper's initialisation. Without `generator`, torch's global generator is used.

    Shapes: -> (n, d)
    """
    shape = (positive("random", "n", n, minimum=0), positive("random", "d", d))
    return torch.randn(shape, generator=generator, dtype=dtype, device=device) * d**-0.5


def finite(what: str, x: Tensor) -> Tensor:
    """Return `x` if all its elements are finite; tracers of torch, which have no values, are not checked."""
    if _eager() and not bool(x.detach().isfinite().all()):
        raise OptionError(f"{what} is not finite: its weights are too large, or it divides by zero; take smaller ones")
    return x


# The two transforms, and the operations between them.


class _Spectrum(Function):
    """rfft along the last axis, with irfft as its derivative (see the top of this file)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.d = x.shape[-1]
        return rfft_rows(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _signal(grad, ctx.d)


class _Signal(Function):
    """irfft along the last axis, with rfft as its derivative (see the top of this file)."""

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor, d: int) -> Tensor:
        return irfft_rows(spectrum, d)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _spectrum(grad), None


class _Times(Function):
    """The product of two spectra, with a derivative that allocates less memory than autograd's."""

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

    With U = F / |F|, only the component of dF orthogonal to F changes the phase: dF -> i U Im(conj(U) dF) / |F|.
    """

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor) -> Tensor:
        scale = _inverse_modulus(spectrum)
        ctx.save_for_backward(spectrum, scale)
        return _phases_by_definition(spectrum, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        spectrum, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative will be computed
            scale = _inverse_modulus(spectrum)
        phases = spectrum * scale
        return phases * (1j * ((phases.conj() * grad).imag * scale))


def rfft_rows(x: Tensor) -> Tensor:
    """rfft along the last axis, also of an empty batch, which MKL's transforms refuse."""
    if x.numel() == 0:
        return x.new_zeros(*x.shape[:-1], x.shape[-1] // 2 + 1).to(x.dtype.to_complex())
    return torch.fft.rfft(x)


def irfft_rows(spectrum: Tensor, d: int) -> Tensor:
    """irfft along the last axis to vectors of `d` elements, also of an empty batch."""
    if spectrum.numel() == 0:
        return spectrum.real.new_zeros(*spectrum.shape[:-1], d)
    return torch.fft.irfft(spectrum, n=d)


def _eager() -> bool:
    """Whether tensors are ordinary ones: torch.compile and torch.func pass symbolic or wrapped tensors."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def _tracked(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _spectrum(x: Tensor) -> Tensor:
    return _Spectrum.apply(x) if _tracked(x) and _eager() else rfft_rows(x)


def _signal(spectrum: Tensor, d: int) -> Tensor:
    return _Signal.apply(spectrum, d) if _tracked(spectrum) and _eager() else irfft_rows(spectrum, d)


def _phases(spectrum: Tensor) -> Tensor:
    if not _eager():
        return _phases_by_definition(spectrum, _inverse_modulus(spectrum))
    if _tracked(spectrum):
        return _Phases.apply(spectrum)
    modulus = spectrum.abs()
    if spectrum.is_cpu and spectrum.numel() and modulus.amin() >= torch.finfo(modulus.dtype).tiny:
        # Every frequency has energy, which is the usual case. The spectrum belongs to us: overwrite it.
        return spectrum.mul_(modulus.reciprocal_())
    return _phases_by_definition(spectrum, _inverse_modulus(spectrum))


def _phases_by_definition(spectrum: Tensor, scale: Tensor) -> Tensor:
    return spectrum * scale + (scale == 0)


def _times(product: Tensor, factor: Tensor) -> Tensor:
    # Both spectra belong to us. Where nothing else reads `product`, it is overwritten: this saves an allocation and
    # up to a third of the time.
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
    """Whether a * b has the shape and dtype of a."""
    if a.dtype != b.dtype or b.ndim > a.ndim:
        return False
    # Not torch.broadcast_shapes, which imports sympy.
    return all(n in (m, 1) for n, m in zip(reversed(b.shape), reversed(a.shape), strict=False))


def _inverse_modulus(spectrum: Tensor) -> Tensor:
    """1 / |F|, and 0 where |F| is below the smallest normal number, because no phase is reliable there."""
    modulus = spectrum.abs()
    return torch.where(modulus < torch.finfo(modulus.dtype).tiny, torch.inf, modulus).reciprocal()


def _reciprocal(spectrum: Tensor) -> Tensor:
    scale = _inverse_modulus(spectrum)
    return spectrum.conj() * scale * scale


def _direction(x: Tensor) -> Tensor:
    # Dividing by the largest element first keeps the squares of very large and very small vectors in range. Autograd
    # treats the divisor as a constant, which is correct: a direction does not depend on the norm.
    largest = torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=-1, keepdim=True)
    x = x / torch.where(largest == 0, 1, largest)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.where(largest == 0, torch.inf, length).reciprocal()


def _checked(operation: str, *vectors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """The vectors in a dtype that the transforms support, and the dtype of the result."""
    if _all_float32_of_one_length(vectors):
        return vectors, torch.float32
    for vector in vectors:
        if not isinstance(vector, Tensor):
            raise DTypeError(f"{operation}: expects torch tensors, got {type(vector).__name__}")
        if not vector.is_floating_point():
            raise DTypeError(f"{operation}: expects real floating-point vectors, got {vector.dtype}; use .float()")
        if vector.ndim == 0 or vector.shape[-1] == 0:
            raise ShapeError(
                f"{operation}: expects vectors along the last axis, got shape {tuple(vector.shape)}; "
                "the last axis must have at least one element"
            )
        if vector.shape[-1] != vectors[0].shape[-1]:
            raise ShapeError(
                f"{operation}: the vectors differ in length, {vectors[0].shape[-1]} and {vector.shape[-1]}; "
                f"the last axis must be equal in all shapes ({', '.join(str(tuple(v.shape)) for v in vectors)})"
            )
    dtype = vectors[0].dtype
    for vector in vectors[1:]:
        dtype = torch.promote_types(dtype, vector.dtype)
    compute_dtype = torch.promote_types(dtype, torch.float32)  # the CPU has no half-precision transform
    return tuple(vector.to(compute_dtype) for vector in vectors), dtype


def _all_float32_of_one_length(vectors: tuple[Tensor, ...]) -> bool:
    """Whether no further check or conversion is needed. For small d the full checks take half the time of a bind."""
    if not all(isinstance(vector, Tensor) and vector.dtype == torch.float32 for vector in vectors):
        return False
    length = vectors[0].shape[-1:]
    return bool(length) and length[0] > 0 and all(vector.shape[-1:] == length for vector in vectors)
