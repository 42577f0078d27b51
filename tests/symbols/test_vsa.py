"""The contract of every vector-symbolic system, and the laws of single systems."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import holobind as hb
from holobind.symbols.vsa import HRR, MAPC, SYSTEMS, VSA, VTB

every_system = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)


def draw(system, n, d, seed=0):
    return system.random(n, d, torch.Generator().manual_seed(seed))


@every_system
def test_random_symbols_depend_only_on_the_generator_and_are_nearly_orthogonal(system):
    symbols = draw(system, 50, 1024)
    assert symbols.shape == (50, 1024)
    assert torch.equal(symbols, draw(system, 50, 1024))
    cosines = system.similarity(symbols[:, None], symbols)
    assert_close(cosines.diag(), torch.ones(50))
    assert cosines.fill_diagonal_(0).abs().max() < 6 / 1024**0.5


@every_system
def test_a_pair_is_similar_to_neither_operand(system):
    a, b = draw(system, 2, 1024)
    assert abs(system.similarity(system.bind(a, b), a)) < 0.2
    assert abs(system.similarity(system.bind(a, b), b)) < 0.2


@every_system
def test_unbinding_the_right_operand_recovers_the_left_one_from_a_bundle(system):
    x, y, others = draw(system, 12, 4096).split(4)
    statement = system.bundle(system.bind(x, y))
    answers = system.unbind(statement, y)
    candidates = torch.cat([x, others])
    assert torch.equal(system.similarity(answers[:, None], candidates).argmax(-1), torch.arange(4))


@every_system
def test_binding_with_the_inverted_key_is_unbinding(system):
    s, key = draw(system, 2, 64)
    bound = system.bind(s, system.invert(key))
    clipped = bound.clamp(-1, 1) if system == MAPC() else bound
    assert_close(clipped, system.unbind(s, key))


@every_system
def test_commutative_says_whether_operands_can_be_exchanged(system):
    assert isinstance(system, VSA)
    a, b = draw(system, 2, 64)
    assert torch.allclose(system.bind(a, b), system.bind(b, a), atol=1e-5) == system.commutative


@every_system
def test_bundling_several_vectors_is_bundling_their_stack(system):
    stack = draw(system, 3, 16) * 0.3
    assert_close(system.bundle(*stack), system.bundle(stack))
    assert_close(system.bundle(stack), hb.bundle(stack))
    with pytest.raises(hb.ShapeError, match="a single vector of shape"):
        system.bundle(stack[0])


@every_system
def test_leading_axes_broadcast(system):
    a, b = draw(system, 6, 16).view(3, 2, 16), draw(system, 2, 16, 1)
    for operation in (system.bind, system.unbind):
        looped = torch.stack([torch.stack([operation(a[i, j], b[j]) for j in range(2)]) for i in range(3)])
        assert_close(operation(a, b), looped)
    assert system.bundle(a).shape == (3, 16)


@every_system
def test_gradients_flow(system):
    a, b = (v.double().requires_grad_() for v in draw(system, 2, 9))
    assert gradcheck(system.bind, (a, b))
    assert gradcheck(lambda s: system.unbind(s, b), (a * 0.01).detach().requires_grad_())


def test_exact_and_approximate_inverses_agree_for_unitary_keys_only():
    s, key = draw(HRR(), 2, 32)
    exact, approximate = HRR("exact"), HRR("approximate")
    assert not torch.allclose(exact.unbind(s, key), approximate.unbind(s, key), atol=0.1)
    assert_close(exact.unbind(s, hb.unitary(key)), approximate.unbind(s, hb.unitary(key)))


def test_vtb_multiplies_by_the_block_diagonal_matrix_of_its_definition():
    a, b = draw(VTB(), 2, 16)
    block = 2 * b.view(4, 4)  # sqrt(m) = 2
    transformation = torch.block_diag(block, block, block, block)
    assert_close(VTB().bind(a, b), transformation @ a)
    assert_close(VTB().unbind(a, b), transformation.T @ a)


def test_vtb_unbinds_the_right_operand_and_swap_exchanges_the_operands():
    a, b, c = draw(VTB(), 3, 4096)
    pair = VTB().bind(a, b)
    assert torch.equal(VTB().swap(pair), VTB().bind(b, a))
    assert VTB().similarity(VTB().unbind(pair, b), a) > 0.6
    assert abs(VTB().similarity(VTB().unbind(pair, a), b)) < 0.1
    assert VTB().similarity(VTB().unbind(VTB().swap(pair), a), b) > 0.6
    nested = VTB().bind(pair, c)
    assert VTB().similarity(VTB().unbind(VTB().unbind(nested, c), b), a) > 0.4


def test_mapc_clips_bundles_and_divides_exactly():
    x, y = draw(MAPC(), 2, 64)
    assert MAPC().bundle(torch.ones(3, 4)).tolist() == [1, 1, 1, 1]
    assert_close(MAPC().unbind(MAPC().bind(x, y), y), x)
    assert MAPC().unbind(torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.0])).tolist() == [0, 0]


@pytest.mark.parametrize("d", [2, 15, 1023])
def test_vtb_refuses_a_dimension_that_is_not_a_square(d):
    with pytest.raises(hb.ShapeError, match=f"perfect square, got {d}; the nearest are"):
        VTB().random(1, d)
    with pytest.raises(hb.ShapeError, match="perfect square"):
        VTB().bind(torch.randn(d), torch.randn(d))


def test_wrong_arguments_are_refused():
    with pytest.raises(hb.OptionError, match="inverse must be one of 'exact', 'approximate'; got 'pseudo'"):
        HRR("pseudo")
    with pytest.raises(hb.ShapeError, match="MAPC: the vectors differ in length"):
        MAPC().bind(torch.randn(3), torch.randn(4))
    with pytest.raises(hb.OptionError, match="MAPC: d must be at least 1, got 0"):
        MAPC().random(1, 0)
