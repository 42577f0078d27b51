"""One contract for the text networks: the output of a text depends on that text alone."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import adaptive_max_pool1d, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

import holobind as hb
from holobind.data.batches import TokenBatch, TokenExamples, length_buckets
from holobind.networks import AttentionLstm, XmlCnn

N = 40
SMALL = {
    XmlCnn: {"embedding_dim": 6, "widths": (2, 3, 5), "filters": 4, "chunks": 3, "bottleneck": 7},
    AttentionLstm: {"embedding_dim": 6, "hidden_size": 5, "queries": 2, "layers": (8, 7)},
}
every_network = pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.__name__)
some_lengths = st.lists(st.integers(0, 12), min_size=1, max_size=6)
seeds = st.integers(0, 1000)
pytestmark = pytest.mark.usefixtures("one_thread")


def make(kind, **options):
    return kind(N, **{**SMALL[kind], **options})


def examples(lengths, seed=0):
    ids = np.random.default_rng(seed).integers(1, N, sum(lengths), dtype=np.int32)
    return TokenExamples(ids, np.cumsum([0, *lengths]))


def batch(texts, *index):
    return texts.batch(np.array(index, dtype=int))


def cnn_by_definition(network, ids):
    """One text, without padding: all windows, then the largest of each chunk."""
    x = network.embedding(ids).T[None]
    answers = [
        adaptive_max_pool1d(convolution(pad(x, (0, convolution.kernel_size[0] - 1))), network.chunks)
        for convolution in network.convolutions
    ]
    return network.hidden(torch.cat(answers, 1).relu().flatten(1)).relu()[0]


def lstm_by_definition(network, ids):
    x = network.embedding(ids)
    f, b = network.ahead(x)[0], network.back(x.flip(0))[0].flip(0)
    hidden_states = torch.cat([f, b], 1)
    attention = (hidden_states @ network.attention.weight.T).softmax(0)
    f, b = (attention.T @ hidden_states).chunk(2, 1)
    return network.layers(torch.cat([f, b], 1).flatten())


BY_DEFINITION = {XmlCnn: cnn_by_definition, AttentionLstm: lstm_by_definition}


@every_network
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), seeds)
def test_each_row_is_what_the_definition_gives_for_its_text_alone(kind, lengths, seed):
    network, texts = make(kind).eval(), examples(lengths, seed)
    found = network(batch(texts, *range(len(texts))))
    assert found.shape == (len(lengths), network.out_features)
    for row, text in zip(found, np.split(texts.ids, texts.offsets[1:-1]), strict=True):
        assert_close(row, BY_DEFINITION[kind](network, torch.from_numpy(text).long()), atol=1e-5, rtol=1e-4)


@every_network
@given(some_lengths, st.integers(0, 9), seeds)
def test_the_same_text_gives_the_same_output_and_gradient_in_any_batch(kind, lengths, extra, seed):
    network, texts = make(kind, sparse=False).eval(), examples(lengths, seed)
    together = batch(texts, *range(len(texts)))
    wider = TokenBatch(pad(together.ids, (0, extra)), together.lengths)  # longer than any text
    found = network(wider)
    assert_close(torch.cat([network(batch(texts, i)) for i in range(len(texts))]), found, atol=1e-5, rtol=1e-4)
    slopes = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed))
    (found * slopes).sum().backward()
    joint = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    network.zero_grad()
    for i in range(len(texts)):
        (network(batch(texts, i)) * slopes[i]).sum().backward()
    for name, parameter in network.named_parameters():
        assert_close(joint[name], parameter.grad, atol=1e-4, rtol=1e-3)


@every_network
def test_what_padding_holds_does_not_matter(kind):
    network, texts = make(kind).eval(), examples([3, 12, 0, 7])
    inputs = batch(texts, 0, 1, 2, 3)
    beyond = torch.arange(inputs.ids.shape[1]) >= inputs.lengths[:, None]
    assert_close(network(TokenBatch(inputs.ids.masked_fill(beyond, 5), inputs.lengths)), network(inputs))


@every_network
@pytest.mark.parametrize("lengths", [[0], [0, 0], [0, 5, 0], []], ids=str)
def test_empty_texts_have_finite_outputs_and_gradients(kind, lengths):
    network, texts = make(kind, sparse=False), examples(lengths)
    found = network(batch(texts, *range(len(lengths))))
    assert found.shape == (len(lengths), network.out_features)
    found.sum().backward()
    assert found.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@every_network
def test_gradients_of_the_embedding_have_rows_of_the_batch_only(kind):
    network, texts = make(kind), examples([4, 2])
    network(batch(texts, 0, 1)).square().sum().backward()
    assert network.embedding.weight.grad.is_sparse
    assert set(network.embedding.weight.grad.coalesce().indices()[0].tolist()) <= set(texts.ids.tolist())
    assert all(not p.grad.is_sparse for name, p in network.named_parameters() if not name.startswith("embedding"))


@every_network
def test_config_builds_the_same_network_again(kind):
    network = make(kind, seed=3, dropout=0.1)
    again = kind(**json.loads(json.dumps(network.config())))
    assert again.config() == network.config()
    assert again.out_features == network.out_features
    for (name, a), (other, b) in zip(network.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    with torch.device("meta"):  # how a file's claims are checked before they take memory
        claimed = kind(**network.config()).state_dict()
    assert {name: a.shape for name, a in claimed.items()} == {n: a.shape for n, a in network.state_dict().items()}


@every_network
def test_weights_come_from_the_seed_and_the_global_generator_is_left_alone(kind):
    before = torch.get_rng_state()
    first, second, other = make(kind), make(kind), make(kind, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@every_network
def test_given_word_vectors_are_the_first_weights_and_padding_stays_zero(kind):
    vectors = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
    network = make(kind, vectors=vectors)
    assert torch.equal(network.embedding.weight[1:], vectors[1:])
    assert not network.embedding.weight[0].any()
    with pytest.raises(hb.ShapeError, match=r"wants \(40, 6\), a row for each token; got \(40, 5\)"):
        make(kind, vectors=vectors[:, :5])


@every_network
def test_dropout_is_for_training_only(kind):
    network, inputs = make(kind), batch(examples([9, 5]), 0, 1)
    assert not torch.equal(network(inputs), network(inputs))
    network.eval()
    assert torch.equal(network(inputs), network(inputs))


@every_network
@pytest.mark.parametrize(
    "head",
    [lambda h: hb.LinearHead(h, 9, "softmax", seed=0), lambda h: hb.HolographicHead(h, 9, 16, crosstalk=0.0, seed=0)],
    ids=["linear", "hrr"],
)
def test_a_network_and_a_head_learn_which_word_is_there(kind, head):
    """The training rows are memorised: without dropout and without the crosstalk term."""
    texts = TokenExamples(np.random.default_rng(0).integers(2, N, 64 * 6, dtype=np.int32), np.arange(65) * 6)
    labels, offsets = torch.from_numpy(texts.ids[::6] % 9).long(), torch.arange(64)
    network = make(kind, embedding_dim=16, dropout=0.0, embedding_dropout=0.0)
    head = head(network.out_features)
    rest = [*(p for name, p in network.named_parameters() if not name.startswith("embedding")), *head.parameters()]
    optimisers = torch.optim.SparseAdam([network.embedding.weight], 0.02), torch.optim.Adam(rest, 0.02)
    for _ in range(100):
        head.loss(network(batch(texts, *range(64))), labels, offsets).backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
    found = head.top_k(network(batch(texts, *range(64))), 1)[1][:, 0]
    assert (found == labels).float().mean() > 0.9


def test_the_lstm_is_a_packed_bidirectional_one():
    network, inputs = make(AttentionLstm).eval(), batch(examples([3, 8, 1]), 0, 1, 2)
    both = torch.nn.LSTM(6, 5, batch_first=True, bidirectional=True)
    for name, weight in network.ahead.named_parameters():
        getattr(both, name).data.copy_(weight)
        getattr(both, f"{name}_reverse").data.copy_(getattr(network.back, name))
    packed = pack_padded_sequence(network.embedding(inputs.ids), inputs.lengths, batch_first=True, enforce_sorted=False)
    hidden_states = pad_packed_sequence(both(packed)[0], batch_first=True)[0]
    real = torch.arange(8) < inputs.lengths[:, None]
    attention = (hidden_states @ network.attention.weight.T).masked_fill(~real[:, :, None], -torch.inf).softmax(1)
    seen_f, seen_b = (attention.transpose(1, 2) @ hidden_states).chunk(2, 2)
    assert_close(network(inputs), network.layers(torch.cat([seen_f, seen_b], 2).flatten(1)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (XmlCnn, {"widths": ()}, "at least one width"),
        (XmlCnn, {"widths": (2, 0)}, "widths must be at least 1, got 0"),
        (XmlCnn, {"chunks": 0}, "chunks must be at least 1, got 0"),
        (AttentionLstm, {"layers": (8, 0)}, "layers must be at least 1, got 0"),
        (AttentionLstm, {"hidden_size": -1}, "hidden_size must be at least 1, got -1"),
    ],
)
def test_sizes_that_make_no_network_are_refused(kind, options, message):
    with pytest.raises(hb.OptionError, match=message):
        make(kind, **options)


@given(some_lengths, st.lists(st.integers(0, 5), max_size=8), seeds)
def test_a_batch_is_its_texts_padded_with_zeros(lengths, index, seed):
    texts = examples(lengths, seed)
    index = [i % len(lengths) for i in index]
    ids, found = batch(texts, *index)
    assert len(texts) == len(lengths)
    assert ids.dtype == found.dtype == torch.int64
    assert found.tolist() == [lengths[i] for i in index]
    max_tokens = max((lengths[i] for i in index), default=0)
    alone = np.split(texts.ids, texts.offsets[1:-1])
    assert ids.tolist() == [alone[i].tolist() + [0] * (max_tokens - lengths[i]) for i in index]


@given(st.integers(0, 500), st.integers(1, 20), st.integers(1, 5), seeds)
def test_bucketed_batches_hold_every_text_once_and_follow_the_seed(n, batch_size, bucket, seed):
    draw = np.random.default_rng(seed)
    lengths, order = draw.integers(0, 99, 2 * n), draw.permutation(2 * n)[:n]
    batches = list(length_buckets(lengths, order, batch_size, seed, bucket))
    assert sorted(np.concatenate([np.empty(0, int), *batches])) == sorted(order)
    assert len(batches) == -(-n // batch_size)
    assert sorted(map(len, batches))[1:] == [batch_size] * (len(batches) - 1)
    again = list(length_buckets(lengths, order, batch_size, seed, bucket))
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_bucketed_batches_have_little_padding_and_no_order_of_length():
    draw = np.random.default_rng(0)
    lengths, order = draw.geometric(0.01, 20_000), draw.permutation(20_000)
    batches = [lengths[i] for i in length_buckets(lengths, order, 32, seed=0)]
    padded = sum(n.max() * len(n) for n in batches)
    assert padded < 1.15 * lengths.sum()
    means = np.array([n.mean() for n in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.1
    other = [lengths[i] for i in length_buckets(lengths, order, 32, seed=1)]
    assert not np.array_equal(batches[0], other[0])


def test_bucketed_refuses_empty_batches():
    with pytest.raises(hb.OptionError, match="batch_size must be at least 1, got 0"):
        next(length_buckets(np.ones(3), np.arange(3), 0, 0))
