"""The orbit codebook: rolls of a few bases."""

import pytest
import torch
from helpers.codebooks import all_vectors, seeds, sizes
from hypothesis import given
from torch.testing import assert_close

import holobind as hb


@given(sizes, seeds)
def test_a_label_of_an_orbit_is_its_base_rolled(size, seed):
    n, d = size
    table = all_vectors(hb.OrbitCodebook(n, d, seed=seed))
    bases = all_vectors(hb.OrbitCodebook(-(-n // d) * d, d, seed=seed))[::d]
    for i in range(n):
        assert_close(table[i], bases[i // d].roll(i % d), atol=0, rtol=0)


@pytest.mark.parametrize("d", [8, 33, 400, 1001])
def test_rolls_of_one_base_are_orthogonal(d):
    table = all_vectors(hb.OrbitCodebook(d, d)).double()
    assert_close(table @ table.T, torch.eye(d, dtype=torch.double), atol=1e-5, rtol=0)


def test_a_trainable_orbit_can_be_expanded_but_not_bound():
    codebook = hb.OrbitCodebook(10, 4).to_trainable()
    with torch.no_grad():
        codebook.bases += 1
    assert_close(all_vectors(codebook.expand_to(23))[:10], all_vectors(codebook))
    with pytest.raises(hb.OptionError, match="trainable and change; bind their sums instead"):
        codebook.bind(torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@given(sizes, seeds)
def test_chosen_labels_of_each_row_have_the_scores_of_all_labels(dtype, size, seed):
    n, d = size
    codebook = hb.OrbitCodebook(n, d, seed=seed)
    if seed % 2:
        codebook = codebook.bind(all_vectors(hb.OrbitCodebook(1, d, seed=seed + 1))[0])
    draw = torch.Generator().manual_seed(seed)
    v, ids = torch.randn(5, d, generator=draw), torch.randint(n, (5, 3), generator=draw)
    found = codebook.scores_of(v, ids.to(dtype))
    assert_close(found, (v[:, None] * all_vectors(codebook)[ids]).sum(2), atol=1e-5, rtol=1e-5)
    assert_close(found, codebook.scores(v).gather(1, ids), atol=1e-5, rtol=1e-5)


def test_every_way_to_score_chosen_labels_agrees():
    """The compiled one takes float32 rows without gradients; all others take the vectors."""
    codebook, draw = hb.OrbitCodebook(50, 12), torch.Generator().manual_seed(0)
    v, ids = torch.randn(4, 12, generator=draw), torch.randint(50, (4, 6), generator=draw)
    expected = codebook.scores_of(v, ids)
    assert_close(codebook.scores_of(v.double(), ids).float(), expected)
    assert_close(codebook.to_trainable().scores_of(v, ids), expected)
    assert_close(codebook.scores_of(v[:, None], ids[:, None])[:, 0], expected)
    assert_close(codebook.scores_of(v.T.contiguous().T, ids.T.contiguous().T), expected)
    tracked = v.clone().requires_grad_()
    codebook.scores_of(tracked, ids).sum().backward()
    assert_close(tracked.grad, codebook.vectors(ids).sum(1))
    assert codebook.scores_of(v[:0], ids[:0]).shape == (0, 6)
    for wrong in (ids - 50, ids + 50):
        with pytest.raises(hb.LabelError, match="is outside this space of 50 labels"):
            codebook.scores_of(v, wrong)
    with pytest.raises(hb.ShapeError, match="one row of ids for each row"):
        codebook.scores_of(v, ids[:2])


def test_an_orbit_is_stored_in_as_many_floats_as_labels():
    codebook = hb.OrbitCodebook(670_091, 3000)
    assert codebook._drawn_conj_spectra.nbytes <= 0.001 * 670_091 * 3000 * 4
    assert list(codebook.state_dict()) == ["fingerprint"]
