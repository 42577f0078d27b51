"""Sums of exponentials over all rolls of bases, for 16 rows at a time, compiled. Importing this module imports numba.

Rows go in pairs, one as the real and one as the imaginary part of a complex vector, which a real base keeps apart:

    a + i b    with    s_j = <v, roll(base, j)>:    a_j = s_j of the first row, b_j = s_j of the second

A transform of length d runs on eight pairs at once, one in each lane of a vector register, so that no step of it moves
values between lanes. An element of a transform is then LANES real and LANES imaginary parts, which fill a cache line.

The inverse transform decimates in frequency and leaves its results in the order of `roll_of_position`; the forward
transform decimates in time and takes them in that order. No step between them needs them sorted. Both work in place,
and all but the first and the last pass on parts that fit the L1 cache.

numba has no vector types, so the passes are written in LLVM's language, with names for what they compute. The kernel is
compiled for each d: radices, strides and the positions of the twiddle factors are constants in it.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from holobind._jit import compiled
from holobind.codebooks._transform_plan import radices, strides

LANES = 8
ROWS = 2 * LANES

# Exponentials are relative to a reference for each row, near the log sum exp so far. The rounding errors of a transform
# go by the larger row of its pair, so neither a row's terms nor their sum may become large: its reference is raised.
MAX_EXPONENT, MAX_LOG_MASS = 2.0, 6.0
MIN_FIRST_EXPONENT = -20.0  # of the largest term of the first base: a lower one needs a lower reference
LEAST_EXPONENT = -87.0  # below it, exp of float32 is 0

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_INDEX = ir.IntType(64)


# Values of LLVM with arithmetic. The flags allow fused multiply-add.


class _Vector:
    """LANES numbers."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, operation: str, other: "_Vector | float") -> "_Vector":
        value = other.value if isinstance(other, _Vector) else _VECTOR([other] * LANES)
        return _Vector(self.builder, getattr(self.builder, operation)(self.value, value, flags=("contract", "nsz")))

    def __add__(self, other: "_Vector | float") -> "_Vector":
        return self._with("fadd", other)

    def __sub__(self, other: "_Vector | float") -> "_Vector":
        return self._with("fsub", other)

    def __mul__(self, other: "_Vector | float") -> "_Vector":
        return self._with("fmul", other)

    def maximum(self, other: "_Vector") -> "_Vector":
        larger = self.builder.fcmp_ordered(">", self.value, other.value)
        return _Vector(self.builder, self.builder.select(larger, self.value, other.value))

    def exp(self) -> "_Vector":
        """exp(x) = 2^n 2^f, n whole and |f| <= 1/2: 2^f by a polynomial, 2^n by the bits of the exponent."""
        shifted = self * math.log2(math.e) + _ROUNDING  # n is in the last bits of its mantissa
        f = self * math.log2(math.e) - (shifted - _ROUNDING)
        power = _Vector(self.builder, _VECTOR([_EXP2[-1]] * LANES))
        for coefficient in _EXP2[-2::-1]:
            power = power * f + coefficient
        builder = self.builder
        exponent = builder.shl(builder.bitcast(shifted.value, _INTEGERS), _INTEGERS([23] * LANES))
        bits = builder.add(builder.bitcast(power.value, _INTEGERS), exponent)
        in_range = builder.fcmp_ordered(">", self.value, _VECTOR([LEAST_EXPONENT] * LANES))
        return _Vector(builder, builder.bitcast(builder.select(in_range, bits, _INTEGERS([0] * LANES)), _VECTOR))


_ROUNDING = 1.5 * 2.0**23  # adding it to a float32 rounds that to a whole number


def _exp2_coefficients(degree: int = 6) -> list[float]:
    """2^f on [-1/2, 1/2] at the nodes of Chebyshev: an error of 2e-8 of the value."""
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)) / 2
    return [float(c) for c in np.polynomial.Polynomial.fit(nodes, 2.0**nodes, degree, domain=[-1, 1]).coef]


_EXP2 = _exp2_coefficients()

Complex = tuple[_Vector, _Vector]


def _add(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _subtract(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _add_i(a: Complex, b: Complex) -> Complex:
    """a + i b"""
    return a[0] - b[1], a[1] + b[0]


def _subtract_i(a: Complex, b: Complex) -> Complex:
    """a - i b"""
    return a[0] + b[1], a[1] - b[0]


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _times_conj(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] + a[1] * b[1], a[1] * b[0] - a[0] * b[1]


# Transforms of a few elements: y_q = sum_j x_j exp(2 pi i j q / n)


def _inverse_2(x: list[Complex]) -> list[Complex]:
    return [_add(x[0], x[1]), _subtract(x[0], x[1])]


def _inverse_3(x: list[Complex]) -> list[Complex]:
    total, difference = _add(x[1], x[2]), _subtract(x[1], x[2])
    turned = difference[0] * math.sin(math.tau / 3), difference[1] * math.sin(math.tau / 3)
    rest = x[0][0] - total[0] * 0.5, x[0][1] - total[1] * 0.5
    return [_add(x[0], total), _add_i(rest, turned), _subtract_i(rest, turned)]


def _inverse_4(x: list[Complex]) -> list[Complex]:
    even, odd = _inverse_2(x[::2]), _inverse_2(x[1::2])
    return [_add(even[0], odd[0]), _add_i(even[1], odd[1]), _subtract(even[0], odd[0]), _subtract_i(even[1], odd[1])]


def _inverse_5(x: list[Complex]) -> list[Complex]:
    (c1, s1), (c2, s2) = ((math.cos(math.tau * k / 5), math.sin(math.tau * k / 5)) for k in (1, 2))
    p, q, r, s = _add(x[1], x[4]), _add(x[2], x[3]), _subtract(x[1], x[4]), _subtract(x[2], x[3])
    a, b = ((x[0][0] + p[0] * c + q[0] * e, x[0][1] + p[1] * c + q[1] * e) for c, e in ((c1, c2), (c2, c1)))
    u, v = (r[0] * s1 + s[0] * s2, r[1] * s1 + s[1] * s2), (r[0] * s2 - s[0] * s1, r[1] * s2 - s[1] * s1)
    return [_add(x[0], _add(p, q)), _add_i(a, u), _add_i(b, v), _subtract_i(b, v), _subtract_i(a, u)]


def _inverse_8(x: list[Complex]) -> list[Complex]:
    even, odd = _inverse_4(x[::2]), _inverse_4(x[1::2])
    # Times exp(pi i / 4); exp(3 pi i / 4) is i times that.
    first, third = (((o[0] - o[1]) * math.sqrt(0.5), (o[0] + o[1]) * math.sqrt(0.5)) for o in odd[1::2])
    low = [_add(even[0], odd[0]), _add(even[1], first), _add_i(even[2], odd[2]), _add_i(even[3], third)]
    high = [_subtract(even[0], odd[0]), _subtract(even[1], first)]
    return [*low, *high, _subtract_i(even[2], odd[2]), _subtract_i(even[3], third)]


_INVERSE: dict[int, Callable[[list[Complex]], list[Complex]]] = {
    2: _inverse_2,
    3: _inverse_3,
    4: _inverse_4,
    5: _inverse_5,
    8: _inverse_8,
}


def _inverse(x: list[Complex]) -> list[Complex]:
    return _INVERSE[len(x)](x)


def _forward(x: list[Complex]) -> list[Complex]:
    """With real and imaginary parts swapped before and after, an inverse transform is a forward one."""
    return [(real, imag) for imag, real in _inverse([(imag, real) for real, imag in x])]


class _Memory:
    """An array of float32, read and written by elements of a transform, or by single numbers for all lanes."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self.builder = builder
        self.start = context.make_array(array_type)(context, builder, array).data

    def _pointer(self, index: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.start, [index]), kind.as_pointer())

    def load(self, element: Any) -> Complex:
        return self._load(element, 0), self._load(element, LANES)

    def _load(self, element: Any, offset: int) -> _Vector:
        index = self.builder.add(self.builder.mul(element, _INDEX(ROWS)), _INDEX(offset))
        return _Vector(self.builder, self.builder.load(self._pointer(index, _VECTOR), align=4))

    def store(self, element: Any, x: Complex) -> None:
        for part, offset in zip(x, (0, LANES), strict=True):
            index = self.builder.add(self.builder.mul(element, _INDEX(ROWS)), _INDEX(offset))
            self.builder.store(part.value, self._pointer(index, _VECTOR), align=4)

    def number(self, index: Any) -> _Vector:
        number = self.builder.load(self._pointer(index, ir.FloatType()))
        first = self.builder.insert_element(_VECTOR(ir.Undefined), number, ir.IntType(32)(0))
        return _Vector(self.builder, self.builder.shuffle_vector(first, _VECTOR(ir.Undefined), _INTEGERS([0] * LANES)))

    def complex_number(self, index: Any) -> Complex:
        twice = self.builder.mul(index, _INDEX(2))
        return self.number(twice), self.number(self.builder.add(twice, _INDEX(1)))


class _Passes:
    """The passes of a transform by its plan, as code at a builder's position."""

    def __init__(self, d: int, context: Any, builder: Any, arrays: list[tuple[Any, Any]]) -> None:
        plan = radices(d)
        assert plan is not None
        self.d, self.plan, self.strides, self.builder = d, plan, strides(plan), builder
        n_twiddles = [(radix - 1) * stride for radix, stride in zip(plan, self.strides, strict=True)]
        self.first_twiddle = [sum(n_twiddles[:level]) for level in range(len(plan))]
        self.memories = [_Memory(context, builder, kind, array) for kind, array in arrays]

    @contextmanager
    def loop(self, start: Any, stop: int, step: int) -> Iterator[Any]:
        """A loop over start + 0, start + step, ..., below start + stop."""
        with cgutils.for_range(self.builder, _INDEX(stop // step), intp=_INDEX) as counter:
            yield self.builder.add(start, self.builder.mul(counter.index, _INDEX(step)))

    @contextmanager
    def butterflies(self, level: int, start: Any, length: int) -> Iterator[tuple[list[Any], Any]]:
        """A loop over the butterflies of a pass within a part: their elements, and where their twiddles start."""
        radix, stride, builder = self.plan[level], self.strides[level], self.builder
        with self.loop(start, length, radix * stride) as block, self.loop(_INDEX(0), stride, 1) as p:
            first = builder.add(block, p)
            elements = [builder.add(first, _INDEX(j * stride)) for j in range(radix)]
            yield elements, builder.add(builder.mul(p, _INDEX(radix - 1)), _INDEX(self.first_twiddle[level]))

    def twiddle(self, twiddles: _Memory, first: Any, q: int) -> Complex:
        return twiddles.complex_number(self.builder.add(first, _INDEX(q - 1)))

    def decimated(self, x: list[Complex], twiddles: _Memory, first: Any) -> list[Complex]:
        """A butterfly of the inverse transform, decimated in frequency."""
        y = _inverse(x)
        return y[:1] + [_times(y[q], self.twiddle(twiddles, first, q)) for q in range(1, len(y))]

    def joined(self, x: list[Complex], twiddles: _Memory, first: Any) -> list[Complex]:
        """A butterfly of the forward transform, decimated in time."""
        turned = [_times_conj(x[q], self.twiddle(twiddles, first, q)) for q in range(1, len(x))]
        return _forward(x[:1] + turned)

    def exponentials(self) -> None:
        query, spectrum, twiddles, offsets, reference, buffer, largest = self.memories
        part, zero = self.strides[0], _INDEX(0)
        with self.butterflies(0, zero, self.d) as (elements, twiddle):
            x = [_times(query.load(k), spectrum.complex_number(k)) for k in elements]
            self._store(buffer, elements, self.decimated(x, twiddles, twiddle))
        lowest = _Vector(self.builder, _VECTOR([-math.inf] * LANES))
        largest.store(zero, (lowest, lowest))
        middle = range(1, len(self.plan) - 1)
        with self.loop(zero, self.d, part) as start:
            for level in middle:
                with self.butterflies(level, start, part) as (elements, twiddle):
                    x = [buffer.load(k) for k in elements]
                    self._store(buffer, elements, self.decimated(x, twiddles, twiddle))
            with self.butterflies(len(self.plan) - 1, start, part) as (elements, _):
                top, origin, terms = largest.load(zero), reference.load(zero), []
                for k, scores in zip(elements, _inverse([buffer.load(k) for k in elements]), strict=True):
                    offset = offsets.number(k)
                    a, b = scores[0] + offset, scores[1] + offset
                    top = top[0].maximum(a), top[1].maximum(b)
                    terms.append(((a - origin[0]).exp(), (b - origin[1]).exp()))
                largest.store(zero, top)
                self._store(buffer, elements, _forward(terms))
            for level in reversed(middle):
                with self.butterflies(level, start, part) as (elements, twiddle):
                    x = [buffer.load(k) for k in elements]
                    self._store(buffer, elements, self.joined(x, twiddles, twiddle))

    def accumulation(self) -> None:
        buffer, spectrum, twiddles, total = self.memories
        with self.butterflies(0, _INDEX(0), self.d) as (elements, twiddle):
            y = self.joined([buffer.load(k) for k in elements], twiddles, twiddle)
            terms = [_times_conj(y[j], spectrum.complex_number(k)) for j, k in enumerate(elements)]
            self._store(total, elements, [_add(total.load(k), terms[j]) for j, k in enumerate(elements)])

    def _store(self, memory: _Memory, elements: list[Any], x: list[Complex]) -> None:
        for element, value in zip(elements, x, strict=True):
            memory.store(element, value)


@intrinsic(prefer_literal=True)
def _exponentials(typing_context, d, query, spectrum, twiddles, offsets, reference, buffer, largest):  # type: ignore[no-untyped-def]
    """Write exp(score + offset - reference) of all rolls, transformed up to the last pass, and the largest score."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arrays = list(zip(signature.args[1:], values[1:], strict=True))
        _Passes(d.literal_value, context, builder, arrays).exponentials()
        return context.get_dummy_value()

    return types.void(d, query, spectrum, twiddles, offsets, reference, buffer, largest), generate


@intrinsic(prefer_literal=True)
def _accumulation(typing_context, d, buffer, spectrum, twiddles, total):  # type: ignore[no-untyped-def]
    """The last pass: add the product of the transformed weights and the base's spectrum to the total."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arrays = list(zip(signature.args[1:], values[1:], strict=True))
        _Passes(d.literal_value, context, builder, arrays).accumulation()
        return context.get_dummy_value()

    return types.void(d, buffer, spectrum, twiddles, total), generate


@compiled()
def rescale_rows(total, scale):  # type: ignore[no-untyped-def]
    """Multiply each row by a factor, in the spectra of pairs.

    The spectrum of a pair is T = A + i B, with the spectra A and B of real vectors: conj(T[-k]) = A[k] - i B[k], hence

        a A + b i B = (a + b) / 2 T[k] + (a - b) / 2 conj(T[-k])
    """
    d = len(total) // ROWS
    for lane in range(LANES):
        half_sum = (scale[lane] + scale[LANES + lane]) / 2
        half_difference = (scale[lane] - scale[LANES + lane]) / 2
        if half_sum == 1 and half_difference == 0:
            continue
        for k in range(d // 2 + 1):
            here, there = k * ROWS + lane, (d - k) % d * ROWS + lane
            x, y, u, v = total[here], total[here + LANES], total[there], total[there + LANES]
            total[here], total[here + LANES] = half_sum * x + half_difference * u, half_sum * y - half_difference * v
            total[there], total[there + LANES] = half_sum * u + half_difference * x, half_sum * v - half_difference * y


@lru_cache
def sum_of_exponentials(d: int) -> Callable[..., None]:
    """The compiled function that sums over the bases from `first` to `last`, for one d.

        total      sum_i exp(score_i + bias_i - reference) F(c_i), of pairs     (d, 2, LANES)
        mass       sum_i exp(score_i + bias_i - reference)                      (ROWS), float64
        reference  of each row; the function raises it where it must            (ROWS)

    query     the spectra of the rows' pairs, divided by d                      (d, 2, LANES)
    spectra   the conjugate spectra of the bases                                (bases, 2 (d // 2 + 1))
    bias      of each label, or empty                                           (L) or (0)
    settle    whether a reference may also be lowered: the given one is no estimate
    buffer    room for a transform                                              (d, 2, LANES)

    Arrays of more axes are passed flat. `total` and `mass` start at 0.
    """
    plan = radices(d)
    assert plan is not None

    @compiled()
    def run(query, spectra, first, last, n_labels, bias, rolls, twiddles, settle, reference, total, mass, buffer):  # type: ignore[no-untyped-def]
        spectrum, offsets = np.empty(2 * d, np.float32), np.zeros(d, np.float32)
        largest, scale = np.empty(ROWS, np.float32), np.empty(ROWS)
        base_mass = np.empty(ROWS)
        for base in range(first, last):
            half = spectra[base]
            for k in range(d // 2 + 1):
                spectrum[2 * k], spectrum[2 * k + 1] = half[2 * k], half[2 * k + 1]
            for k in range(1, (d + 1) // 2):
                spectrum[2 * (d - k)], spectrum[2 * (d - k) + 1] = half[2 * k], -half[2 * k + 1]
            spectrum[1] = 0  # frequencies without a mirror are real
            if d % 2 == 0:
                spectrum[d + 1] = 0
            if len(bias) or (base + 1) * d > n_labels:
                for position in range(d):
                    label = base * d + rolls[position]
                    if label >= n_labels:
                        offsets[position] = -np.inf
                    else:
                        offsets[position] = bias[label] if len(bias) else 0
            again = True
            while again:
                again = False
                _exponentials(d, query, spectrum, twiddles, offsets, reference, buffer, largest)  # type: ignore[call-arg]
                base_mass[:] = 0
                for start in range(0, d, d // plan[0]):  # of the frequency 0, which is the sum of the weights
                    for row in range(ROWS):
                        base_mass[row] += buffer[start * ROWS + row]
                scale[:] = 1
                for row in range(ROWS):
                    above, raised = largest[row] - reference[row], reference[row]
                    if above > MAX_EXPONENT or (settle and -np.inf < above < MIN_FIRST_EXPONENT):
                        raised = largest[row] + np.float32(1)
                    elif mass[row] + base_mass[row] > np.exp(MAX_LOG_MASS):
                        raised += np.float32(np.log(mass[row] + base_mass[row]))
                    if raised != reference[row]:
                        again = True
                        if mass[row] > 0:
                            scale[row] = np.exp(np.float64(reference[row]) - np.float64(raised))
                        mass[row] *= scale[row]
                        reference[row] = raised
                if again:
                    rescale_rows(total, scale)
            mass += base_mass
            _accumulation(d, buffer, spectrum, twiddles, total)  # type: ignore[call-arg]

    return run
