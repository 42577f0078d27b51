"""A linear layer on features beside a network on tokens."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.testing import assert_close

import holobind as hb
from holobind.data.batches import SparseExamples, TextExamples, TokenExamples
from holobind.data.csr import normalise_rows
from holobind.networks import AttentionLstm, WideAndDeep, XmlCnn
from holobind.ridge_knn import solve_ridge
from holobind.training import loop

TEXTS = [f"{'sour ' * (i % 2)}{('apple', 'pear', 'fig')[i % 3]} pie number{i % 7}" for i in range(60)]
Y = csr_array(np.eye(6, dtype=np.float32)[np.arange(60) % 6])
SMALL = {"embedding_dim": 4, "hidden": (5,), "dim": 4, "l2": 0.5}
DEEP = {
    "cnn": lambda: XmlCnn(9, 4, filters=2, bottleneck=5, dropout=0.0, embedding_dropout=0.0, seed=1),
    "lstm": lambda: AttentionLstm(9, 4, hidden_size=3, layers=(5,), dropout=0.0, embedding_dropout=0.0, seed=1),
}
every_network = pytest.mark.parametrize("kind", list(DEEP))


def examples():
    X = csr_array(np.random.default_rng(0).random((3, 7)).astype(np.float32))
    tokens = TokenExamples(np.array([2, 3, 4, 8, 5], np.int32), np.array([0, 3, 3, 5]))
    return X, TextExamples(SparseExamples(X), tokens)


@every_network
def test_the_output_is_the_sum_of_both_paths(kind):
    X, texts = examples()
    network = WideAndDeep(7, 6, DEEP[kind]())
    for parameter in (network.linear_skip.weight, network.output.weight, network.output.bias):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    rows = np.array([2, 0, 1])
    x = torch.from_numpy(normalise_rows(X)[rows].toarray())
    h = network.deep(texts.tokens.batch(rows))
    wanted = x @ network.linear_skip.weight + h @ network.output.weight.T + network.output.bias
    assert_close(network(texts.batch(rows)), wanted)


@every_network
def test_a_config_builds_the_same_network_again(kind):
    network = WideAndDeep(7, 6, DEEP[kind]())
    again = WideAndDeep(**network.config())
    assert again.config() == network.config() and type(again.deep) is type(network.deep)
    again.load_state_dict(network.state_dict())


def test_other_networks_beside_it_are_refused():
    with pytest.raises(hb.OptionError, match="deep is one of cnn, lstm; got 'fc'"):
        WideAndDeep(7, 6, {"class": "fc", "n_features": 7})
    with pytest.raises(hb.OptionError, match="n_features must be at least 1"):
        WideAndDeep(0, 6, DEEP["cnn"]())


def test_a_text_is_empty_if_it_has_neither_features_nor_tokens():
    X = csr_array(np.array([[0, 0], [1, 0], [0, 0]], np.float32))
    tokens = TokenExamples(np.array([5], np.int32), np.array([0, 0, 0, 1]))
    assert TextExamples(SparseExamples(X), tokens).empty_rows().tolist() == [True, False, False]


@every_network
def test_without_a_step_it_is_the_ridge_regression_on_tfidf_features(kind, monkeypatch):
    monkeypatch.setattr(loop, "fit", lambda *_, **__: loop.TrainState())
    config = hb.ModelConfig(network=kind, knn_weight=0, label_trees=0, rare_label_boost=0, **SMALL)
    model = hb.learn(hb.Split(csr_array((60, 0), dtype=np.float32), Y, TEXTS), config)
    features = normalise_rows(model.tfidf.transform(TEXTS))
    solution = solve_ridge(features, model.to_head_labels(Y), model.head.ridge_codebook(), 0.5)
    wanted = model.head.scores(torch.from_numpy(features @ solution.weights.numpy()) + solution.bias)
    in_order = wanted[:, torch.from_numpy(np.argsort(model.label_order))]
    assert_close(torch.from_numpy(model.scores(TEXTS)), in_order, atol=1e-3, rtol=1e-3)


@every_network
def test_the_linear_path_stays_where_it_was_solved_and_the_rest_learns(kind):
    split = hb.Split(csr_array((60, 0), dtype=np.float32), Y, TEXTS)
    config = hb.ModelConfig(network=kind, knn_weight=0, label_trees=0, **SMALL)
    one, other = (hb.learn(split, config, hb.TrainConfig(epochs=n, validation_fraction=0.0)) for n in (1, 4))
    assert_close(one.network.linear_skip.weight, other.network.linear_skip.weight)
    assert one.network.linear_skip.weight.requires_grad and one.network.linear_skip.weight.any()
    assert not torch.equal(one.network.output.weight, other.network.output.weight)
