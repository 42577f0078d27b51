"""One contract for every vector-symbolic system."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import holobind as hb
from holobind.symbols.vsa import HRR, MAPC, VTB, UnitaryHRR

SYSTEMS = [HRR(), HRR("approximate"), UnitaryHRR(), VTB(), MAPC(), MAPC("approximate")]
every_system = pytest.mark.parametrize("system", SYSTEMS, ids=repr)


def draw(system, n, d, seed=0):
    return system.random(n, d, torch.Generator().manual_seed(seed))


@every_system
def test_random_symbols_follow_the_generator_and_are_nearly_orthogonal(system):
    symbols = draw(system, 50, 1024)
    assert symbols.shape == (50, 1024)
    assert torch.equal(symbols, draw(system, 50, 1024))
    cosines = system.similarity(symbols[:, None], symbols)
    assert_close(cosines.diag(), torch.ones(50))
    assert cosines.fill_diagonal_(0).abs().max() < 6 / 1024**0.5


@every_system
def test_a_pair_is_similar_to_neither_part(system):
    a, b = draw(system, 2, 1024)
    assert abs(system.similarity(system.bind(a, b), a)) < 0.2
    assert abs(system.similarity(system.bind(a, b), b)) < 0.2


@every_system
def test_unbinding_a_bundle_of_pairs_finds_each_partner(system):
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


def test_exact_and_approximate_hrr_differ_for_naive_symbols_and_agree_for_unitary_ones():
    s, key = draw(HRR(), 2, 32)
    exact, approximate = HRR("exact"), HRR("approximate")
    assert not torch.allclose(exact.unbind(s, key), approximate.unbind(s, key), atol=0.1)
    assert_close(exact.unbind(s, hb.unitary(key)), approximate.unbind(s, hb.unitary(key)))


def test_vtb_is_the_block_diagonal_matrix_of_its_definition():
    a, b = draw(VTB(), 2, 16)
    block = 2 * b.view(4, 4)  # sqrt(m) = 2
    transformation = torch.block_diag(block, block, block, block)
    assert_close(VTB().bind(a, b), transformation @ a)
    assert_close(VTB().unbind(a, b), transformation.T @ a)


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


def test_mistakes_are_told():
    with pytest.raises(hb.OptionError, match="'exact' or 'approximate', got 'pseudo'"):
        HRR("pseudo")
    with pytest.raises(hb.ShapeError, match="MAPC: the vectors differ in length"):
        MAPC().bind(torch.randn(3), torch.randn(4))
