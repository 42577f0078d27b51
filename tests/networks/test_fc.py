"""Networks on sparse rows: the sparse layer against the dense product, batches against scipy's slices."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import normalize
from torch.testing import assert_close

import holobind as hb
from holobind.data.batches import SparseBatch, SparseExamples, ragged_labels
from holobind.networks import FC, SparseLinear

seeds = st.integers(0, 2**16)


def features(n=9, f=13, seed=0, density=0.3):
    """Sparse rows; the second and the last are empty."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, f)) * (draw.random((n, f)) < density)
    X[[1, -1]] = 0
    return sparse.csr_array(X.astype(np.float32))


def rows_of(X, normalise=False):
    return SparseExamples(X, normalise).batch(np.arange(X.shape[0]))


def dense_of(rows, f):
    dense = torch.zeros(len(rows.offsets), f)
    ends = [*rows.offsets.tolist(), len(rows.ids)]
    for r, (a, b) in enumerate(pairwise(ends)):
        for j in range(a, b):
            dense[r, rows.ids[j]] += rows.values[j]
    return dense


def layer(f=13, out=4, seed=0):
    return SparseLinear(f, out, scale=1.0, seed=seed)


# The sparse layer


@settings(max_examples=25)
@given(st.integers(2, 20), st.integers(1, 20), st.integers(1, 9), seeds)
def test_a_sparse_layer_is_the_dense_product_and_so_is_its_gradient(n, f, out, seed):
    X, sparse_layer = features(n, f, seed), layer(f, out, seed)
    wanted = sparse_layer.weight.detach().clone().requires_grad_()
    upstream = torch.randn(n, out, generator=torch.Generator().manual_seed(seed))
    found = sparse_layer(rows_of(X))
    expected = torch.from_numpy(X.toarray()) @ wanted
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    found.backward(upstream)
    expected.backward(upstream)
    assert_close(sparse_layer.weight.grad.to_dense(), wanted.grad, atol=1e-5, rtol=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    rows, weight = rows_of(features(5, 6, seed=3)), layer(6, 3).weight.detach().double()
    rows = rows._replace(values=rows.values.double())

    def loss(W):
        sparse_layer = layer(6, 3).double()
        with torch.no_grad():
            sparse_layer.weight.copy_(W)
        value = sparse_layer(rows).square().sum()
        return value, sparse_layer

    value, sparse_layer = loss(weight)
    value.backward()
    slope = sparse_layer.weight.grad.to_dense()
    for i in range(6):
        for j in range(3):
            step = torch.zeros_like(weight)
            step[i, j] = 1e-6
            numeric = (loss(weight + step)[0] - loss(weight - step)[0]) / 2e-6
            assert_close(slope[i, j], numeric.detach(), atol=1e-5, rtol=1e-5)


def test_the_gradient_holds_only_features_that_occurred_once_each():
    X = sparse.csr_array(([1.0, 2.0, 3.0, 4.0], [5, 2, 2, 0], [0, 2, 3, 4]), shape=(3, 9))
    sparse_layer = layer(9)
    sparse_layer(rows_of(X)).sum().backward()
    grad = sparse_layer.weight.grad
    assert grad.is_sparse
    assert grad._indices()[0].tolist() == [0, 2, 5]


def test_empty_rows_give_zero_and_an_empty_batch_nothing():
    sparse_layer = layer()
    assert sparse_layer(rows_of(features()))[[1, -1]].eq(0).all()
    for X in (features()[:0], sparse.csr_array((3, 13), dtype=np.float32)):
        sparse_layer.zero_grad()
        found = sparse_layer(rows_of(X))
        assert found.shape == (X.shape[0], 4)
        found.sum().backward()
        assert sparse_layer.weight.grad.to_dense().eq(0).all()


# The network


@pytest.mark.parametrize("options", [{}, {"hidden": (7,)}, {"hidden": (7, 5), "out_features": 3}], ids=str)
def test_fc_is_relu_between_layers(options):
    network = FC(13, **options)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
    h = torch.from_numpy(features().toarray()) @ network.first.weight + network.first_bias
    for one in network.layers:
        h = h.relu() @ one.weight.T + one.bias
    assert_close(network(rows_of(features())), h if "out_features" in options else h.relu(), atol=1e-4, rtol=1e-4)


def test_without_hidden_layers_it_is_linear_and_starts_at_0():
    network = FC(13, (), 4)
    assert network(rows_of(features())).eq(0).all()
    with torch.no_grad():
        network.first.weight.normal_(generator=torch.Generator().manual_seed(0))
        network.first_bias.fill_(0.5)
    one, other = features(seed=1), features(seed=2)
    together = network(rows_of(sparse.csr_array(one + 2 * other))) - 0.5
    apart = network(rows_of(one)) - 0.5 + 2 * (network(rows_of(other)) - 0.5)
    assert_close(together, apart, atol=1e-4, rtol=1e-4)


def test_a_linear_skip_adds_a_linear_layer_and_starts_at_the_last_bias():
    network, rows = FC(13, (7,), 4, linear_skip=True), rows_of(features())
    with torch.no_grad():
        network.layers[-1].bias.copy_(torch.arange(4))
    assert_close(network(rows), torch.arange(4.0).expand(9, 4))
    deep = FC(13, (7,), 4)
    with torch.no_grad():
        network.linear_skip.weight.normal_(generator=torch.Generator().manual_seed(0))
        network.layers[-1].weight.copy_(deep.layers[-1].weight)
        network.layers[-1].bias.zero_()
    assert_close(network(rows), deep(rows) + network.linear_skip(rows))


@pytest.mark.parametrize("option", ["dropout", "feature_dropout"])
def test_dropout_is_for_training_only_and_keeps_the_mean(option):
    rows = rows_of(features(400, density=0.9))
    plain, dropping = FC(13, (30,), 4), FC(13, (30,), 4, **{option: 0.5})
    dropping.load_state_dict(plain.state_dict())
    assert torch.equal(plain.eval()(rows), dropping.eval()(rows))
    dropping.train()
    torch.manual_seed(0)
    one, other = dropping(rows), dropping(rows)
    assert not torch.equal(one, other)
    torch.manual_seed(0)
    assert torch.equal(dropping(rows), one)
    if option == "dropout":  # before a linear layer: the other units are scaled up, so that the mean stays
        mean = torch.stack([dropping(rows) for _ in range(300)]).mean(0)
        assert_close(mean, plain(rows), atol=0.3, rtol=0.2)


def test_feature_dropout_leaves_out_features_and_scales_the_rest():
    network = FC(200, (), 200, feature_dropout=0.25).train()
    with torch.no_grad():
        network.first.weight.copy_(torch.eye(200))
    torch.manual_seed(0)
    found = network(rows_of(sparse.csr_array(np.ones((50, 200), np.float32)))).detach()
    assert_close(found.unique(), torch.tensor([0, 1 / 0.75]))
    assert float((found == 0).float().mean()) == pytest.approx(0.25, abs=0.02)


def test_the_seed_alone_decides():
    torch.manual_seed(1)
    one = FC(13, (7,), 4, seed=5)
    torch.manual_seed(2)
    other, third = FC(13, (7,), 4, seed=5), FC(13, (7,), 4, seed=6)
    rows = rows_of(features())
    assert torch.equal(one(rows), other(rows))
    assert not torch.equal(one(rows), third(rows))


@pytest.mark.parametrize(
    "options", [{}, {"hidden": (), "out_features": 3}, {"out_features": 3, "linear_skip": True}], ids=str
)
def test_its_config_builds_it_again(options):
    network = FC(13, **options)
    again = FC(**network.config())
    again.load_state_dict(network.state_dict())
    assert torch.equal(network(rows_of(features())), again(rows_of(features())))
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in FC(**network.config()).state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": ()}, "hidden layers or out_features"),
        ({"hidden": (5, 0)}, "positive sizes"),
        ({"n_features": 0}, "positive sizes"),
        ({"hidden": (), "out_features": 3, "linear_skip": True}, "linear_skip is in parallel to hidden layers"),
        ({"linear_skip": True}, "needs out_features"),
        ({"dropout": 1.0}, "from 0 to below 1"),
        ({"feature_dropout": -0.1}, "from 0 to below 1"),
        ({"dropout": float("nan")}, "from 0 to below 1"),
    ],
)
def test_wrong_sizes_and_fractions_are_refused(options, message):
    with pytest.raises(hb.OptionError, match=message):
        FC(**{"n_features": 13, **options})


# Batches


@pytest.mark.parametrize("normalise", [False, True])
@settings(max_examples=25)
@given(st.integers(2, 20), st.integers(1, 20), st.lists(st.integers(0, 1000), max_size=30), seeds)
def test_a_batch_is_scipys_slice_in_any_order(normalise, n, f, some, seed):
    X, index = features(n, f, seed), np.array([i % n for i in some], np.intp)
    found = dense_of(SparseExamples(X, normalise).batch(index), f)
    wanted = (normalize(X) if normalise else X).toarray()[index]
    assert_close(found, torch.from_numpy(wanted).reshape(len(index), f), atol=1e-6, rtol=1e-5)


@settings(max_examples=25)
@given(st.integers(2, 20), st.lists(st.integers(0, 1000), max_size=30), seeds)
def test_label_sets_of_rows_are_scipys_slice(n, some, seed):
    Y, index = features(n, 11, seed), np.array([i % n for i in some], np.intp)
    labels, offsets = ragged_labels(Y, index)
    wanted = Y[index]
    assert labels.tolist() == wanted.indices.tolist()
    assert offsets.tolist() == wanted.indptr[:-1].tolist()


def test_arrays_mapped_from_files_are_read_in_place(tmp_path):
    X = features(50)
    arrays = {}
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(X, name))
        arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mapped = sparse.csr_array(X.shape, dtype=np.float32)
    mapped.data, mapped.indices, mapped.indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    assert isinstance(mapped.data, np.memmap)
    index = np.array([49, 3, 3, 1, 0])
    for found, wanted in zip(SparseExamples(mapped).batch(index), SparseExamples(X).batch(index), strict=True):
        assert torch.equal(found, wanted)


def test_rows_of_large_values_and_of_integers_are_normalised():
    X = sparse.csr_array(np.array([[3e30, 4e30], [0, 0]], np.float32))
    assert_close(SparseExamples(X).batch(np.array([0])).values, torch.tensor([0.6, 0.8]))
    whole = sparse.csr_array(np.array([[3, 4], [0, 0]], np.int64))
    assert_close(SparseExamples(whole).batch(np.array([1, 0])).values, torch.tensor([0.6, 0.8]))


def test_a_row_of_stored_zeros_has_no_length_and_stays():
    X = sparse.csr_array((np.array([0.0, 0.0, 2.0], np.float32), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    assert SparseExamples(X).batch(np.array([0, 1])).values.tolist() == [0, 0, 1]


def test_rows_move_between_devices():
    moved = rows_of(features()).to(torch.device("meta"))
    assert isinstance(moved, SparseBatch) and all(tensor.is_meta for tensor in moved)
