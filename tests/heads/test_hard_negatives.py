"""Hard negatives of the query loss."""

import pytest
import torch
from torch.testing import assert_close

import holobind as hb
from holobind.errors import OptionError
from holobind.heads.hard_negatives import hardest_negatives

LABELS, OFFSETS = torch.tensor([3, 0, 5, 3, 9]), torch.tensor([0, 2, 2])  # row 1 has no label


def test_the_hardest_negatives_are_the_best_labels_that_a_row_lacks():
    codebook = hb.OrbitCodebook(30, 16)
    s = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    found = hardest_negatives(s, LABELS, torch.tensor([2, 0, 3]), codebook, 4)
    scores = codebook.scores(s)
    scores[0, [3, 0]] = scores[2, [5, 3, 9]] = -torch.inf
    assert found.tolist() == scores.topk(4)[1].tolist()


def test_where_labels_are_few_there_are_fewer_negatives():
    codebook = hb.OrbitCodebook(3, 8)
    found = hardest_negatives(torch.randn(1, 8), torch.tensor([0, 2]), torch.tensor([2]), codebook, 4)
    assert found.tolist() == [[1, -1, -1, -1]]


def test_the_loss_adds_the_positive_cosines_of_the_hardest_negatives_while_it_trains():
    plain, head = (hb.HolographicHead(None, 40, 16, loss="query", seed=0, hard_negatives=k) for k in (0, 3))
    s = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    cosines = plain.scores(s) / s.norm(dim=1, keepdim=True)
    cosines[0, [3, 0]] = cosines[2, [5, 3, 9]] = 0
    expected = cosines.relu().topk(3)[0][[0, 2]].sum() / 3
    assert_close(head.loss(s, LABELS, OFFSETS), plain.loss(s, LABELS, OFFSETS) + expected)
    assert_close(head.eval().loss(s, LABELS, OFFSETS), plain.loss(s, LABELS, OFFSETS))


def test_hard_negatives_belong_to_the_query_loss():
    for options in ({"loss": "softmax", "hard_negatives": 3}, {"loss": "query", "hard_negatives": -1}):
        with pytest.raises(OptionError, match="hard_negatives are at least 0 and belong to the query loss"):
            hb.HolographicHead(4, 9, 8, **options)
    with pytest.raises(OptionError, match="hard_negatives belong to the query loss"):
        hb.ModelConfig(network="fc", hard_negatives=3)
    hb.ModelConfig(network="fc", loss="query", hard_negatives=3)
