"""Rows of several requests in one batch get what each would get alone."""

import asyncio

import numpy as np
import pytest
from helpers.models import X

from holobind.errors import LabelError
from holobind.serve import Settings
from holobind.serve.batching import Batcher
from holobind.serve.registry import Registry


@pytest.fixture(scope="module")
def versions(model_files):
    return [served.current for served in Registry(model_files)]


def together(requests, **settings):
    """The results of requests that arrive at the same time, and (rows, requests) of each batch."""
    batches = []

    async def run():
        batcher = Batcher(Settings(**settings), lambda _, inputs, found, n: batches.append((len(found.empty), n)))
        batcher.start()
        try:
            return await asyncio.gather(*(batcher.rank(*each) for each in requests), return_exceptions=True)
        finally:
            await batcher.stop()

    return asyncio.run(run()), batches


def test_a_batch_gives_each_request_what_it_gets_alone(versions):
    fruit, rows = versions
    requests = [
        (fruit, ["apple pear"], 2),
        (rows, X[:3], 4),
        (fruit, ["plum2", "zzz", "fig1"], 5),
        (fruit, ["apple"], 3, (0,)),
        (rows, X[3:4], 1),
        (fruit, ["pear"], 9),
    ]
    found, batches = together(requests)
    for (version, inputs, k, *exclude), each in zip(requests, found, strict=True):
        alone = version.model.rank(inputs, k, exclude=exclude[0] if exclude else ())
        np.testing.assert_array_equal(each.ranking.ids, alone.ids)
        np.testing.assert_allclose(each.ranking.scores, alone.scores, atol=1e-6)
    assert found[2].empty == [False, True, False]
    assert sorted(batches) == [(1, 1), (4, 2), (5, 3)]


def test_the_rows_of_a_batch_are_bounded_and_a_larger_request_is_one_by_itself(versions):
    requests = [(versions[0], ["apple"] * n, 1) for n in (2, 2, 7, 2)]
    found, batches = together(requests, max_batch_rows=4)
    assert [len(each.empty) for each in found] == [2, 2, 7, 2]
    assert sorted(batches) == [(2, 1), (4, 2), (7, 1)]


def test_an_error_of_one_request_is_not_an_error_of_the_others(versions):
    fruit = versions[0]
    found, _ = together(
        [(fruit, ["apple"], 1), (fruit, ["pear", None], 1), (fruit, ["plum2"], 1), (fruit, ["a"], 1, ("x",))]
    )
    assert isinstance(found[1], Exception)
    assert isinstance(found[3], LabelError)
    assert found[0].ranking.ids.shape == found[2].ranking.ids.shape == (1, 1)
