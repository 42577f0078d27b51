"""Ragged label sets: sizes, chunks and sums."""

import torch
from helpers.codebooks import normal, ragged
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from holobind.codebooks.ragged import set_chunks, set_sizes, sum_sets

label_sets = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=8)


@given(label_sets)
def test_set_sizes_are_the_lengths_of_the_rows(rows):
    assert set_sizes(*ragged(*rows)).tolist() == [len(row) for row in rows]


@given(label_sets, st.integers(1, 12))
def test_chunks_hold_all_rows_in_order_and_no_more_labels_than_allowed(rows, max_labels):
    labels, offsets = ragged(*rows)
    weights = normal(len(labels))
    found, chunk_weights = [], []
    for ids, starts, factors in set_chunks(labels, offsets, weights, max_labels):
        assert len(ids) <= max_labels or len(starts) == 1
        found += [row.tolist() for row in ids.tensor_split(starts[1:])]
        chunk_weights.append(factors)
    assert found == rows
    assert torch.equal(torch.cat(chunk_weights), weights)


@given(label_sets)
def test_sums_are_those_of_each_row(rows):
    labels, offsets = ragged(*rows)
    table, weights = normal(10, 3), normal(len(labels), seed=1)
    pairs = zip(labels.split([len(row) for row in rows]), weights.split([len(row) for row in rows]), strict=True)
    expected = torch.stack([(table[ids] * factors[:, None]).sum(0) for ids, factors in pairs])
    assert_close(sum_sets(table[labels], offsets, weights), expected)
