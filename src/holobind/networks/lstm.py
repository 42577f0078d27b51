"""A bidirectional LSTM with attention: AttentionXML's body (You et al. 2019), without its tree of labels."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from holobind._checks import positive
from holobind.data.batches import Tokens
from holobind.networks.base import Network
from holobind.networks.embedding import seeded, word_embedding


class AttentionLstm(Network):
    """A bidirectional LSTM over the words, attention over its hidden_size, then fully connected layers.

        f[i], b[i]   hidden_size after reading from the first word to word i, and from the last back to it
        a            = softmax over i of q . (f[i], b[i])
        c            = sum over i of a[i] (f[i], b[i])
        h            = relu layers on c

    with `queries` vectors q, whose answers c stand side by side. An empty text has c = 0.

    Padding cannot leak: both directions read from a text's own end, the backward one because each text is turned
    around within its length, so that padding comes after everything that is used. One of the two directions never
    needs to be turned back: only its attention scores are, which are numbers and not vectors. Packed sequences would
    do the same in 1.6 times the time (two CPU cores, `benchmarks/bench_text_networks.py`).

    States, hidden layer and dropout are as the authors of AttentionXML configured it for EUR-Lex; there, word vectors
    stayed as they were given, and every label had a query of its own. `vectors` (vocab_size, embedding_dim) are initial word
    vectors; `sparse` gradients of the embedding are for optimisers that take them, see `word_embedding`.

    Shapes: Tokens of (rows, max_tokens) -> (rows, out_features)
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int = 300,
        hidden_size: int = 256,
        queries: int = 1,
        layers: Sequence[int] = (256,),
        dropout: float = 0.5,
        embedding_dropout: float = 0.2,
        *,
        sparse: bool = True,
        seed: int = 0,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        sizes = {
            "vocab_size": vocab_size,
            "embedding_dim": embedding_dim,
            "hidden_size": hidden_size,
            "queries": queries,
        }
        for name, value in [*sizes.items(), *(("layers", size) for size in layers)]:
            positive("AttentionLstm", name, value)
        self._config = {**sizes, "layers": list(layers), "dropout": dropout, "embedding_dropout": embedding_dropout}
        self._config |= {"sparse": sparse, "seed": seed}
        widths = [2 * hidden_size * queries, *layers]
        self.out_features = widths[-1]
        with seeded(seed):
            self.embedding = word_embedding(vocab_size, embedding_dim, vectors, sparse)
            self.ahead = nn.LSTM(embedding_dim, hidden_size, batch_first=True)
            self.back = nn.LSTM(embedding_dim, hidden_size, batch_first=True)
            self.attention = nn.Linear(2 * hidden_size, queries, bias=False)
            self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)))
        self.embedding_dropout, self.dropout = nn.Dropout(embedding_dropout), nn.Dropout(dropout)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def forward(self, inputs: Tokens) -> Tensor:
        ids, lengths = inputs
        if not ids.shape[1]:
            ids = pad(ids, (0, 1))  # an LSTM takes at least one step
        x = self.embedding_dropout(self.embedding(ids))
        place = torch.arange(ids.shape[1], device=ids.device)
        real = place < lengths[:, None]
        turned = torch.where(real, lengths[:, None] - 1 - place, place)
        row = torch.arange(len(ids), device=ids.device)[:, None] * ids.shape[1]
        turned_x = x.flatten(0, 1).index_select(0, (row + turned).flatten()).view_as(x)
        f, b = self.dropout(self.ahead(x)[0]), self.dropout(self.back(turned_x)[0])  # b[i] stands at turned[i]
        asked_f, asked_b = self.attention.weight.chunk(2, 1)
        turned = turned[:, :, None].expand(-1, -1, len(asked_f))
        scores = f @ asked_f.T + (b @ asked_b.T).gather(1, turned)
        beyond = ~real[:, :, None]
        attention = scores.masked_fill(beyond, torch.finfo(scores.dtype).min).softmax(1)
        attention = attention.masked_fill(beyond, 0)  # changes empty texts only: elsewhere these are 0 already
        seen_f = attention.transpose(1, 2) @ f
        seen_b = attention.gather(1, turned).transpose(1, 2) @ b
        return self.layers(torch.cat([seen_f, seen_b], 2).flatten(1))
