"""The appendix's expansions and variances."""

import pytest
import torch
from holobind_paper import appendix_algebra as appendix


@pytest.mark.parametrize(("expansion", "d", "n"), [(appendix.expansion_3, 3, 2), (appendix.expansion_2, 2, 4)])
def test_the_expansions_are_the_definition_and_a_changed_one_is_not(expansion, d, n):
    assert appendix.largest_difference(expansion, d, n, 0) < 1e-9

    def changed(*vectors):
        paper, defined = expansion(*vectors)
        return paper + torch.eye(d)[0], defined

    assert appendix.largest_difference(changed, d, n, 0) > 1e-3


def test_the_variances_follow_the_formulas_except_that_of_a_product():
    found = appendix.variances(64, 20_000, 0)
    assert found["xi"] == pytest.approx(1, abs=0.1)
    assert found["eta"] == pytest.approx(1, abs=0.1)
    assert found["product, 1/d^2"] == pytest.approx(1, abs=0.05)
    assert found["product, 1/d^4"] == pytest.approx(64**2, rel=0.05)
