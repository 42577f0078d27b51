"""Laws of the algebra, each tested against the definition or a slow, obvious implementation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacrev, vmap
from torch.testing import assert_close

import holobind as hb

sizes = st.integers(1, 33)
seeds = st.integers(0, 2**31)
odd_and_even = pytest.mark.parametrize("d", [1, 2, 7, 8])

OPERATIONS = {
    "bind": (hb.bind, 2),
    "bind of three": (hb.bind, 3),
    "unbind": (hb.unbind, 2),
    "unbind of two keys": (hb.unbind, 3),
    "involution": (hb.involution, 1),
    "inverse": (hb.inverse, 1),
    "unitary": (hb.unitary, 1),
    "bundle": (hb.bundle, 2),
    "permute": (lambda x: hb.permute(x, 2), 1),
    "power": (lambda x: hb.power(x, 3), 1),
    "negative power": (lambda x: hb.power(x, -2), 1),
    "similarity": (hb.similarity, 2),
}
every_operation = pytest.mark.parametrize(("operation", "count"), OPERATIONS.values(), ids=OPERATIONS)


def symbols(n, d, seed, dtype=torch.float64):
    return hb.random(n, d, torch.Generator().manual_seed(seed), dtype=dtype)


def bind_by_definition(a, b):
    d = len(a)
    return torch.stack([sum(a[i] * b[(k - i) % d] for i in range(d)) for k in range(d)])


def without_energy_at_zero(t):
    """Vectors (t1, -t1, t2, -t2): their frequency 0 is exactly 0 for every t."""
    return torch.stack([t, -t], -1).flatten(-2)


# Definitions.


@given(sizes, seeds)
def test_bind_is_circular_convolution(d, seed):
    a, b = symbols(2, d, seed)
    assert_close(hb.bind(a, b), bind_by_definition(a, b))


@given(sizes, seeds)
def test_bind_is_commutative_associative_and_distributive(d, seed):
    a, b, c = symbols(3, d, seed)
    assert_close(hb.bind(a, b), hb.bind(b, a))
    assert_close(hb.bind(hb.bind(a, b), c), hb.bind(a, hb.bind(b, c)))
    assert_close(hb.bind(a, hb.bundle(b, c)), hb.bundle(hb.bind(a, b), hb.bind(a, c)))


@given(sizes, seeds, st.integers(2, 6))
def test_binding_several_vectors_is_binding_them_one_after_the_other(d, seed, n):
    vectors = symbols(n, d, seed)
    chained = vectors[0]
    for vector in vectors[1:]:
        chained = hb.bind(chained, vector)
    assert_close(hb.bind(*vectors), chained)


@given(sizes, seeds)
def test_unbind_is_bind_with_the_involution(d, seed):
    s, key, other = symbols(3, d, seed)
    assert_close(hb.unbind(s, key), bind_by_definition(s, hb.involution(key)))
    assert_close(hb.unbind(s, key, other), hb.unbind(hb.unbind(s, key), other))


@given(sizes, seeds)
def test_unbind_is_exact_for_unitary_keys(d, seed):
    x, key = symbols(2, d, seed)
    key = hb.unitary(key)
    assert_close(hb.unbind(hb.bind(x, key), key), x)


@given(sizes, seeds)
def test_involution_reverses_all_elements_but_the_first(d, seed):
    (x,) = symbols(1, d, seed)
    assert_close(hb.involution(x), torch.stack([x[-k % d] for k in range(d)]))


@given(sizes, seeds)
def test_bind_with_the_inverse_is_the_identity(d, seed):
    (x,) = hb.unitary(symbols(1, d, seed)) * 0.9 + 0.02 * symbols(1, d, seed + 1)  # every frequency has energy
    assert_close(hb.bind(x, hb.inverse(x)), hb.identity(d, dtype=x.dtype))


@given(sizes, seeds)
def test_inverse_equals_involution_for_unitary_vectors(d, seed):
    y = hb.unitary(symbols(1, d, seed))
    assert_close(hb.inverse(y), hb.involution(y))


@given(sizes, seeds)
def test_unitary_sets_every_modulus_to_1_and_keeps_the_phase(d, seed):
    (x,) = symbols(1, d, seed)
    before, after = torch.fft.fft(x), torch.fft.fft(hb.unitary(x))
    assert_close(after.abs(), torch.ones(d, dtype=x.dtype))
    assert_close(after * before.abs(), before)


@given(sizes, seeds)
def test_unitary_vectors_have_norm_1_and_do_not_change_again(d, seed):
    y = hb.unitary(symbols(3, d, seed))
    assert_close(hb.unitary(y), y)
    assert_close(y.norm(dim=-1), torch.ones(3, dtype=y.dtype))


@given(sizes, seeds, st.sampled_from([1e-30, 1e-12, 1e12, 1e30]))
def test_unitary_and_similarity_do_not_depend_on_scale(d, seed, scale):
    a, b = symbols(2, d, seed, torch.float32)
    assert_close(hb.unitary(a * scale), hb.unitary(a), rtol=1e-3, atol=1e-5)
    assert_close(hb.similarity(a * scale, b / scale), hb.similarity(a, b), rtol=1e-3, atol=1e-5)


@given(sizes, seeds, st.integers(0, 7))
def test_power_is_repeated_binding(d, seed, exponent):
    (x,) = symbols(1, d, seed)
    product = hb.identity(d, dtype=x.dtype)
    for _ in range(exponent):
        product = hb.bind(product, x)
    assert_close(hb.power(x, exponent), product)
    y = hb.unitary(x)
    assert_close(hb.power(y, -exponent), hb.involution(hb.power(y, exponent)))


@given(sizes, seeds, st.integers(-40, 40))
def test_permute_rolls_and_the_opposite_shift_is_its_inverse(d, seed, shift):
    (x,) = symbols(1, d, seed)
    rolled = hb.permute(x, shift)
    assert torch.equal(rolled, torch.stack([x[(k - shift) % d] for k in range(d)]))
    assert torch.equal(hb.permute(rolled, -shift), x)


@given(sizes, seeds, st.integers(0, 5))
def test_bundling_a_stack_is_bundling_its_vectors(d, seed, n):
    batch = symbols(2 * n, d, seed).view(2, n, d)
    total = torch.zeros(2, d, dtype=batch.dtype)
    for i in range(n):
        total = total + batch[:, i]
    assert_close(hb.bundle(batch), total)
    if n >= 2:
        assert_close(hb.bundle(*batch.unbind(1)), total)


def test_bundling_a_stack_has_gradients_and_keeps_half_precision():
    assert gradcheck(hb.bundle, symbols(6, 4, 0).view(2, 3, 4).requires_grad_())
    assert hb.bundle(symbols(3, 4, 0).bfloat16()).dtype == torch.bfloat16


@given(sizes, seeds)
def test_similarity_is_the_cosine(d, seed):
    a, b = symbols(2, d, seed)
    assert_close(hb.similarity(a, b), (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt()))


def test_random_has_the_variance_of_the_paper_and_depends_only_on_the_generator():
    drawn = symbols(2000, 64, 0)
    assert_close(drawn.var(), torch.tensor(1 / 64, dtype=torch.float64), rtol=0.02, atol=0)
    assert torch.equal(drawn, symbols(2000, 64, 0))
    assert not torch.equal(drawn, symbols(2000, 64, 1))


# Broadcasting, dtypes and special vectors.


@given(seeds)
def test_leading_axes_broadcast_as_in_an_explicit_loop(seed):
    a, b = symbols(6, 5, seed).view(3, 2, 5), symbols(2, 5, seed + 1)
    for operation in (hb.bind, hb.unbind, hb.bundle, hb.similarity):
        looped = torch.stack([torch.stack([operation(a[i, j], b[j]) for j in range(2)]) for i in range(3)])
        assert_close(operation(a, b), looped)
        assert_close(operation(b, a), torch.stack([operation(b, a[i]) for i in range(3)]))


@every_operation
def test_operations_do_not_change_their_inputs(operation, count):
    vectors = symbols(count, 6, 0)
    before = vectors.clone()
    operation(*vectors)
    assert torch.equal(vectors, before)


@every_operation
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_returned_in_half_precision(operation, count, dtype):
    vectors = symbols(count, 16, 1, torch.float32).to(dtype)
    found = operation(*vectors)
    assert found.dtype == dtype
    assert_close(found, operation(*vectors.float()).to(dtype))


def test_mixed_dtypes_follow_the_promotion_rules_of_torch():
    a, b = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.bfloat16)
    assert hb.bind(a, b).dtype == torch.float64
    assert hb.similarity(b, b.float()).dtype == torch.float32


def test_a_frequency_without_energy_gets_phase_0_and_inverse_0():
    x = without_energy_at_zero(torch.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=torch.float64))
    assert_close(torch.fft.rfft(hb.unitary(x))[..., 0].real, torch.ones(2, dtype=x.dtype))
    assert_close(torch.fft.rfft(hb.inverse(x))[..., 0].abs(), torch.zeros(2, dtype=x.dtype))
    assert_close(hb.unitary(torch.zeros(2, 5)), hb.identity(5).expand(2, 5))
    assert_close(hb.inverse(torch.zeros(5)), torch.zeros(5))


def test_a_zero_vector_has_similarity_0_and_gradient_0():
    zero = torch.zeros(4, requires_grad=True)
    similarity = hb.similarity(zero, torch.ones(4))
    assert similarity == 0
    assert torch.equal(torch.autograd.grad(similarity, zero)[0], torch.zeros(4))


@every_operation
def test_an_empty_batch_gives_an_empty_result(operation, count):
    vectors = [torch.empty(0, 6, requires_grad=True) for _ in range(count)]
    found = operation(*vectors)
    assert found.shape in ((0, 6), (0,))
    assert all(g.shape == (0, 6) for g in torch.autograd.grad(found.sum(), vectors))


# Derivatives.


@every_operation
@odd_and_even
def test_gradients_match_finite_differences_to_second_order(operation, count, d):
    vectors = [v.clone().requires_grad_() for v in symbols(2 * count, d, d).view(count, 2, d) * 3]
    assert gradcheck(operation, vectors)
    assert gradgradcheck(operation, vectors)


@odd_and_even
def test_gradients_of_broadcast_vectors_match_finite_differences(d):
    a, b = symbols(3, d, 5).requires_grad_(), symbols(1, d, 6)[0].requires_grad_()
    for operation in (hb.bind, hb.unbind, hb.similarity):
        assert gradcheck(operation, (a, b))
        assert gradcheck(operation, (b, a))


@pytest.mark.parametrize("operation", [hb.unitary, hb.inverse, hb.bind, hb.unbind])
def test_gradients_match_finite_differences_where_a_frequency_is_exactly_zero(operation):
    t = torch.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=torch.float64, requires_grad=True)
    key = symbols(1, 4, 3)[0].requires_grad_()
    if operation in (hb.bind, hb.unbind):
        assert gradcheck(lambda t, key: operation(without_energy_at_zero(t), key), (t, key))
        assert gradcheck(lambda t, key: operation(key, without_energy_at_zero(t)), (t, key))
    else:
        assert gradcheck(lambda t: operation(without_energy_at_zero(t)), t)
        assert gradgradcheck(lambda t: operation(without_energy_at_zero(t)), t)


@pytest.mark.parametrize("operation", [hb.unitary, hb.inverse])
def test_a_frequency_without_energy_receives_gradient_0(operation):
    """The function is discontinuous at such a frequency; its gradient there is defined as 0."""
    x = without_energy_at_zero(torch.tensor([0.3, -0.7])).requires_grad_()
    for vector in (x, torch.zeros(4, requires_grad=True)):
        (gradient,) = torch.autograd.grad(operation(vector), vector, torch.randn(4))
        assert gradient.isfinite().all()
        assert abs(gradient.sum()) < 1e-6  # frequency 0 of the gradient


def test_torch_func_transforms_agree_with_autograd():
    a, b = symbols(2, 6, 9)

    def loss(x):
        return hb.similarity(hb.unitary(hb.bind(x, b)), a) ** 3

    x = symbols(1, 6, 10)[0].requires_grad_()
    assert_close(grad(loss)(x.detach()), torch.autograd.grad(loss(x), x)[0])
    assert_close(hessian(loss)(x.detach()), jacrev(jacrev(loss))(x.detach()))
    assert_close(vmap(hb.bind, in_dims=(None, 0))(a, symbols(3, 6, 11)), hb.bind(a, symbols(3, 6, 11)))


@every_operation
def test_operations_compile_as_one_graph_with_the_same_results(operation, count):
    vectors = [v.clone().requires_grad_() for v in symbols(2 * count, 12, 2, torch.float32).view(count, 2, 12)]
    compiled = torch.compile(operation, fullgraph=True, backend="aot_eager")(*vectors)
    plain = operation(*vectors)
    weight = torch.linspace(-1, 1, plain.numel()).view_as(plain)
    assert_close(compiled, plain)
    for ours, theirs in zip(
        torch.autograd.grad(compiled, vectors, weight), torch.autograd.grad(plain, vectors, weight), strict=True
    ):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# Errors.


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hb.bind(torch.randn(4), torch.randn(5)), hb.ShapeError, "differ in length, 4 and 5"),
        (lambda: hb.unbind(torch.randn(2, 4), torch.randn(1)), hb.ShapeError, "differ in length, 4 and 1"),
        (lambda: hb.bind(torch.ones(4, dtype=torch.int64), torch.randn(4)), hb.DTypeError, "int64.*float"),
        (lambda: hb.unitary(torch.ones(4, dtype=torch.complex64)), hb.DTypeError, "complex64"),
        (lambda: hb.unitary([1.0, 2.0]), hb.DTypeError, "expects torch tensors, got list"),
        (lambda: hb.unitary(torch.empty(3, 0)), hb.ShapeError, r"\(3, 0\)"),
        (lambda: hb.involution(torch.tensor(1.0)), hb.ShapeError, r"shape \(\)"),
        (lambda: hb.power(torch.randn(4), 0.5), hb.OptionError, "exponent must be a whole number, got 0.5"),
        (lambda: hb.permute(torch.randn(4), 1.5), hb.OptionError, "shift must be a whole number"),
        (lambda: hb.bundle(torch.randn(4)), hb.ShapeError, r"a single vector of shape \(4,\); give bundle several"),
        (lambda: hb.identity(0), hb.OptionError, "d must be at least 1, got 0"),
        (lambda: hb.random(-1, 4), hb.OptionError, "n must be at least 0, got -1"),
    ],
)
def test_an_error_is_one_line_of_a_holobind_and_a_standard_type(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, hb.HolobindError)
    assert isinstance(caught.value, ValueError | TypeError)
