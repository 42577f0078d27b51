"""The one-hot codebook against the stored identity matrix."""

import pytest
import torch
from helpers.codebooks import all_vectors, normal
from torch.testing import assert_close

import holobind as hb


@pytest.mark.parametrize(("n", "d"), [(1, 1), (4, 4), (5, 9)])
def test_one_hot_vectors_give_the_results_of_their_stored_twin(n, d):
    codebook, twin = hb.OneHotCodebook(n, d), hb.DenseCodebook(torch.eye(n, d))
    v, label_weights, p = normal(6, d), normal(6, n), hb.unitary(normal(d))
    before, ids = v.clone(), torch.randint(n, (6, 3))
    fast, slow = (v.clone().requires_grad_() for _ in range(2))
    for one, other in (
        (all_vectors(codebook), all_vectors(twin)),
        (codebook.scores(v), twin.scores(v)),
        (codebook.scores_of(v, ids), twin.scores_of(v, ids)),
        (codebook.scores_of(v[:, None], ids[0]), twin.scores_of(v[:, None], ids[0])),
        (codebook.weighted_sum(label_weights), twin.weighted_sum(label_weights)),
        (codebook.log_sum_exp(fast), twin.log_sum_exp(slow)),
        (codebook.top_k(v, n)[1], twin.top_k(v, n)[1]),
        (codebook.top_k(v, 1, labels=(n - 1, n))[1], torch.full((6, 1), n - 1)),
        (all_vectors(codebook.bind(p)), all_vectors(twin.bind(p))),
        (all_vectors(codebook.to_trainable()), all_vectors(twin.to_trainable())),
    ):
        assert_close(one, other)
    for mine, others in zip(codebook.labels_above(v, 0.1, max_bytes=1), twin.labels_above(v, 0.1), strict=True):
        assert torch.equal(mine, others)
    codebook.log_sum_exp(fast).sum().backward()
    twin.log_sum_exp(slow).sum().backward()
    assert_close(fast.grad, slow.grad)
    labels, offsets, weights = torch.tensor([0, n - 1, 0]), torch.tensor([0, 0, 2]), torch.tensor([0.5, 2.0, 3.0])
    assert_close(codebook.encode(labels, offsets, weights), twin.encode(labels, offsets, weights))
    assert_close(codebook.encode(labels, offsets), twin.encode(labels, offsets))
    assert torch.equal(v, before)  # scores are copies of its elements


def test_there_are_at_most_as_many_one_hot_vectors_as_dimensions():
    assert hb.OneHotCodebook(3, 5).expand_to(5).n_labels == 5
    for make in (lambda: hb.OneHotCodebook(6, 5), lambda: hb.OneHotCodebook(3, 5).expand_to(6)):
        with pytest.raises(hb.OptionError, match="one-hot vectors for 5 labels; got 6, take the orbit codebook"):
            make()


def test_a_label_of_minus_one_raises_no_score():
    codebook, v = hb.OneHotCodebook(4, 6), normal(5, 6)
    nothing = codebook.raised_top_k(v, 3, torch.full((5, 2), 9.0), torch.full((5, 2), -1))
    for found, wanted in zip(nothing, codebook.top_k(v, 3), strict=True):
        assert_close(found, wanted)
