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


def test_an_orbit_is_stored_in_as_many_floats_as_labels():
    codebook = hb.OrbitCodebook(670_091, 3000)
    assert codebook._drawn_conj_spectra.nbytes <= 0.001 * 670_091 * 3000 * 4
    assert list(codebook.state_dict()) == ["fingerprint"]
