"""Small models of every network and head."""

import numpy as np
import torch
from scipy import sparse

import holobind as hb
from holobind.data import Split, Tfidf
from holobind.model import Model
from holobind.networks import FC

F, L, N = 11, 9, 40
DRAW = np.random.default_rng(0)
X = sparse.csr_array((DRAW.normal(size=(N, F)) * (DRAW.random((N, F)) < 0.4)).astype(np.float32))
Y = sparse.csr_array((DRAW.random((N, L)) < 0.25).astype(np.int32))
TEXTS = [f"{'apple ' * (i % 3)} pear fig{i % 5} plum{i % 7}" for i in range(N)]
SEEN = hb.metrics.frequencies(Y)

NETWORKS = {
    "linear": lambda out: FC(F, (), out),
    "fc": lambda out: FC(F, (6, 5), None, dropout=0.1, feature_dropout=0.2),
    "linear_skip": lambda out: FC(F, (6,), out, linear_skip=True),
}
HEADS = [
    {"codebook": "orbit"},
    {"codebook": "orbit", "trainable": ("labels",)},
    {"codebook": "random", "loss": "query"},
    {"codebook": "random", "loss": "query", "trainable": ("present", "missing", "labels")},
    {"codebook": "orbit", "loss": "query-abs", "trainable": ("present",)},
    {"codebook": "naive", "loss": "regression"},
    {"loss": "bce"},
    {"loss": "softmax"},
]


def build(network="linear", options=HEADS[0], bias=True, **extra):
    """A model with weights that no seed would draw again."""
    dim = 4 if "codebook" in options else L
    body = NETWORKS[network](dim)
    inside = body.out_features if network == "fc" else None
    if "codebook" in options:
        head = hb.HolographicHead(inside, L, dim, seed=7, bias=bias, **options)
    else:
        head = hb.LinearHead(inside, L, seed=7, bias=bias, **options)
    with torch.no_grad():
        for parameter in [*body.parameters(), *head.parameters()]:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return Model(body, head, SEEN, **extra).eval()


def text_model(words_only=False):
    tfidf, features = Tfidf.fit(TEXTS, words_only=words_only)
    split = Split(features, Y, TEXTS)
    return hb.learn(
        split, hb.ModelConfig(l2=0.1, text=False), tfidf=tfidf, label_names=[f"label {i}\r\x85é" for i in range(L)]
    )


def fruit_model(**options):
    """Names, texts and label sets of documents that name their labels, and a function that trains a model of them."""
    names = ["apple", "pear", "plum", "fig", "cherry", "quince"]
    draw = np.random.default_rng(1)
    sets = [[names[i], names[j]] if i != j else [names[i]] for i, j in draw.integers(0, len(names), (60, 2))]
    texts = [f"a {' and a '.join(each)} in basket{draw.integers(9)}" for each in sets]

    def build():
        Y = sparse.csr_array([[int(name in each) for name in names] for each in sets])
        split = Split(sparse.csr_array((len(texts), 1), dtype=np.float32), Y, texts)
        return hb.learn(split, hb.ModelConfig(text=True, **options), label_names=names)

    return names, texts, sets, build
