"""The top k of rows of scores, and of ranges of labels together."""

import pytest
import torch
from helpers.codebooks import ScoreTable, full_sort, normal
from hypothesis import given
from hypothesis import strategies as st

from holobind import _topk
from holobind.codebooks import _limits as limits
from holobind.codebooks.ranking import merge_top_k, stable_topk


@pytest.mark.parametrize("min_scores", [0, limits.MIN_SCORES_FOR_COMPILED_TOP_K])
@given(st.integers(1, 8), st.integers(1, 200), st.integers(0, 99), st.data())
def test_stable_topk_is_a_full_sort(min_scores, rows, n, seed, data):
    """Also of -inf, compiled or not."""
    k = data.draw(st.integers(1, n))
    scores = torch.randint(-1, 5, (rows, n), generator=torch.Generator().manual_seed(seed)).log().nan_to_num(-torch.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MIN_SCORES_FOR_COMPILED_TOP_K", min_scores)
        found, where = stable_topk(scores, k)
    assert torch.equal(where, full_sort(scores, k))
    assert torch.equal(found, scores.gather(1, where))


@pytest.mark.parametrize("at", [0, 100, 299])
def test_a_nan_is_ranked_as_torch_does(at):
    scores = normal(2, 300)
    scores[1, at] = torch.nan
    _, where = _topk.top_k(scores[:1].numpy(), 5)
    assert where[0].tolist() == scores[0].topk(5).indices.tolist()
    assert _topk.top_k(scores.numpy(), 5) is None


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_merging_label_ranges_keeps_ties_with_the_lowest_label(n, world_size, seed):
    """Scores of a few whole numbers: exact, so that the merge of any ranges is the full sort to the bit."""
    scores = torch.randint(3, (4, n), generator=torch.Generator().manual_seed(seed)).float()
    codebook = ScoreTable(scores)
    for k in {1, min(3, n), n}:
        per_range = [
            codebook.top_k(torch.eye(4), k, labels=codebook.label_range(rank, world_size)) for rank in range(world_size)
        ]
        found, ids = merge_top_k(per_range, k)
        assert torch.equal(ids, full_sort(scores, k)) and torch.equal(found, scores.gather(1, ids))
