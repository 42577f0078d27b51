"""A bidirectional LSTM with attention: AttentionXML's body (You et al. 2019), without its tree of labels."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from holobind._checks import positive
from holobind.data.batches import TokenBatch
from holobind.networks.base import Network
from holobind.networks.embedding import seeded, word_embedding


class AttentionLstm(Network):
    """A bidirectional LSTM over the words, attention over its hidden states, then fully connected layers.

        f[i], b[i]   hidden states after reading from the first word to word i, and from the last back to it
        a            = softmax over i of q . (f[i], b[i])
        c            = sum over i of a[i] (f[i], b[i])
        h            = relu layers on c

    with `queries` vectors q, whose results c are concatenated. An empty text has c = 0.

    Padding has no effect: the backward direction reads each text reversed within its own length, so that padding comes
    after everything that is used. The hidden states of that direction stay reversed; only its attention scores, one
    value a word, are put back in order. Packed sequences give the same in 1.6 times the time (two CPU cores,
    `benchmarks/bench_text_networks.py`).

    hidden_size, layers and dropout are those of AttentionXML's authors for EUR-Lex; there, word vectors were not
    trained, and every label had a query of its own. `vectors` (vocab_size, embedding_dim) are initial word
    vectors; `sparse` gradients of the embedding need an optimiser that takes them, see `word_embedding`.

    Shapes: TokenBatch of (rows, max_tokens) -> (rows, out_features)
    """

    kind = "lstm"
    reads_tokens = True

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
        self._config: dict[str, Any] = {
            **sizes,
            "layers": list(layers),
            "dropout": dropout,
            "embedding_dropout": embedding_dropout,
        }
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

    def describe(self) -> str:
        sizes = ", ".join(map(str, self._config["layers"]))
        size = self._config["hidden_size"]
        return f"bidirectional LSTM of hidden size {size} with attention, hidden layers of {sizes}"

    def forward(self, inputs: TokenBatch) -> Tensor:
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
        query_f, query_b = self.attention.weight.chunk(2, 1)
        turned = turned[:, :, None].expand(-1, -1, len(query_f))
        scores = f @ query_f.T + (b @ query_b.T).gather(1, turned)
        beyond = ~real[:, :, None]
        attention = scores.masked_fill(beyond, torch.finfo(scores.dtype).min).softmax(1)
        attention = attention.masked_fill(beyond, 0)  # changes empty texts only: elsewhere these are 0 already
        context_f = attention.transpose(1, 2) @ f
        context_b = attention.gather(1, turned).transpose(1, 2) @ b
        return self.layers(torch.cat([context_f, context_b], 2).flatten(1))
