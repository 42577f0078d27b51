"""Why trained networks were less accurate than the closed form: one cause changed at a time, on held-out training rows.

    .venv/bin/python experiments/trained_gap.py cooking-stackexchange [--only a b] [--rows 0] [--threads 1]

Each line is one model, fitted to the kept rows of the training split and measured on at most 2,000 held-out ones:
P@1, P@5, nDCG@5, PSP@5, and CPU seconds of the fit. Features are those of the data.

    a  the same linear map and the same loss, squares: ridge regression solved, and trained by gradient descent
    b  the loss of the linear map: squares, softmax, one-versus-all BCE and squared hinge over all labels
    c  the dim of the label vectors (ridge regression)
    d  depth and width of the hidden layers (softmax)
    e  the optimiser: Adam by rows (RowAdam) and Adagrad for the feature layer, batch size, epochs, the mean of weights
       (EMA); hidden layers beside a solved linear path
    f  regularisation (softmax): dropout of features and units, crosstalk, prior, weight decay, label smoothing, mixup
    g  votes of the 30 nearest rows on top: of ridge regression, of the softmax; the closed form's residuals
    h  the query loss: as it is, with hard negatives, with label weights that fall with the frequency; softmax beside it

The last line printed is JSON.
"""

import argparse
import json
import time

import numpy as np
import torch
from holobind_paper.datasets import data_folder
from torch.nn.functional import binary_cross_entropy_with_logits

import holobind as hb
from holobind import metrics
from holobind.data import Split
from holobind.data.batches import SparseExamples, ragged_labels
from holobind.data.csr import normalise_rows
from holobind.data.holdout import holdout
from holobind.heads.losses import squares_loss
from holobind.ridge_knn import choose_extra_scores, default_dim, rare_label_weights, solve_ridge
from holobind.training.loop import clip_gradients
from holobind.training.optimiser import optimisers, sparse_weights

BATCH, L2_BY_DATASET = 128, {"cooking-stackexchange": 0.7, "tibkat-core-en": 1.5, "gutenberg-lcsh": 0.3}


class Trial:
    """A network and head, trained on rows of norm 1 with plain steps: no early stopping, no held-out rows."""

    def __init__(self, X, Y, dim, hidden=(), loss="softmax", epochs=10, sgd=0.0, rate=1e-3, feature_rate=1e-2,
                 prior=True, crosstalk=1.0, start=None, hard_negatives=0, label_boost=0.0, batch=BATCH, adagrad=0.0,
                 ema=0.0, decay=0.0, smoothing=0.0, mixup=0.0, **network):  # fmt: skip
        self.X, self.Y, self.loss_name = X, Y, loss
        self.batch, self.adagrad, self.ema, self.decay = batch, adagrad, ema, decay
        self.smoothing, self.mixup = smoothing, mixup
        gives_output = not hidden or start is not None
        self.network = hb.networks.FC(
            X.shape[1], hidden, dim if gives_output else None, linear_skip=start is not None, **network
        )
        self.head = hb.HolographicHead(
            None if gives_output else hidden[-1], Y.shape[1], dim, seed=0, crosstalk=crosstalk,
            hard_negatives=hard_negatives,
            loss=loss if loss in ("softmax", "squares", "query") else "squares",
        )  # fmt: skip
        if prior:
            self.head.set_prior(torch.from_numpy(np.bincount(Y.indices, minlength=Y.shape[1])))
        if label_boost:
            weights = rare_label_weights(np.bincount(Y.indices, minlength=Y.shape[1]), label_boost)
            self.head.set_label_weights(torch.from_numpy(weights))
        self.bias = torch.nn.Parameter(torch.full((Y.shape[1],), -4.0))  # of one-versus-all losses
        self.scale = torch.nn.Parameter(torch.tensor(4.0))
        if start is not None:
            with torch.no_grad():
                self.network.linear_skip.weight.copy_(start.weights)
                self.network.layers[-1].bias.copy_(start.bias)
            self.network.linear_skip.weight.requires_grad_(False)
        self.one_versus_all = loss in ("bce", "hinge")
        self._train(epochs, sgd, hb.TrainConfig(learning_rate=rate, feature_learning_rate=feature_rate))

    def _train(self, epochs, sgd, config):
        model = torch.nn.ModuleList([self.network, self.head])
        found = optimisers(model, config)
        if sgd or self.adagrad:
            found = [o for o in found if type(o).__name__ != "RowAdam"]
            weights = [w for w in sparse_weights(model) if w.requires_grad]
            found.append(torch.optim.SGD(weights, lr=sgd) if sgd else torch.optim.Adagrad(weights, lr=self.adagrad))
        weights = [w for w in model.parameters() if w.requires_grad]
        means = [w.detach().clone() for w in weights] if self.ema else []
        if self.one_versus_all:
            found.append(torch.optim.AdamW([self.bias, self.scale], lr=config.learning_rate, weight_decay=0.0))
        examples, n = SparseExamples(self.X), self.X.shape[0]
        steps, began = -(-n // self.batch), time.process_time()
        model.train()
        for epoch in range(epochs):
            order = np.random.default_rng([0, epoch]).permutation(n)
            for step in range(steps):
                rows = order[step * self.batch : (step + 1) * self.batch]
                factor = config.schedule((epoch + (step + 0.5) / steps) / epochs)
                for optimiser in found:
                    for group in optimiser.param_groups:
                        group["lr"] = factor * optimiser.defaults["lr"]
                self._loss_of(examples, rows, epoch * steps + step).backward()
                if not sgd:
                    clip_gradients(model.parameters(), 1.0)
                for optimiser in found:
                    optimiser.step()
                    optimiser.zero_grad()
                with torch.no_grad():
                    for w in weights if self.decay else ():
                        w.mul_(1 - factor * self.decay)
                    for mean, w in zip(means, weights, strict=False):
                        mean.lerp_(w, 1 - self.ema)
        with torch.no_grad():
            for mean, w in zip(means, weights, strict=False):
                w.copy_(mean)
        model.eval()
        self.seconds = time.process_time() - began

    def _loss_of(self, examples, rows, step):
        """The loss of a batch; with mixup, of sums of two rows each, with the same part of the loss of either's labels.

        Parts are drawn from Beta(mixup, mixup).
        """
        if not self.mixup:
            return self.loss(self.network(examples.batch(rows)), *ragged_labels(self.Y, rows))
        draw = np.random.default_rng([1, step])
        part, other = np.float32(draw.beta(self.mixup, self.mixup)), draw.permutation(rows)
        mixed = SparseExamples((part * self.X[rows] + (1 - part) * self.X[other]).tocsr())
        h = self.network(mixed.batch(np.arange(len(rows))))
        return sum(
            float(weight) * self.loss(h, *ragged_labels(self.Y, chosen))
            for weight, chosen in ((part, rows), (1 - part, other))
        )

    def loss(self, h, labels, offsets):
        if self.smoothing:  # the cross-entropy with the uniform distribution over all labels
            logits = self.head.logits(h)
            uniform = (logits.logsumexp(1) - logits.mean(1)).mean()
            return (1 - self.smoothing) * self.head.loss(h, labels, offsets) + self.smoothing * uniform
        if not self.one_versus_all:
            if self.loss_name == "squares":
                return squares_loss(self.head(h), labels, offsets, self.head.codebook)
            return self.head.loss(h, labels, offsets)
        scores = self.head.codebook.scores(self.head(h) * self.scale) + self.bias
        row = torch.arange(len(h)).repeat_interleave(offsets.diff(append=torch.tensor([len(labels)])))
        target = torch.zeros_like(scores)
        target[row, labels] = 1
        if self.loss_name == "bce":
            return binary_cross_entropy_with_logits(scores, target, reduction="none").sum(1).mean()
        return torch.relu(1 - (2 * target - 1) * scores).square().sum(1).mean()

    def outputs(self, X):
        with torch.inference_mode():
            return self.network(SparseExamples(X).batch(np.arange(X.shape[0])))

    def top(self, X):
        h = self.outputs(X)
        with torch.inference_mode():
            if not self.one_versus_all:
                return self.head.top_k(h, 5)[1].numpy()
            return (self.head.codebook.scores(self.head(h) * self.scale) + self.bias).topk(5)[1].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--only", nargs="+", default=list("abcdefgh"), choices=list("abcdefgh"))
    parser.add_argument("--rows", type=int, default=0, help="train on this many rows; 0 for all")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--one-hot", action="store_true", help="part c also with a dim for each label")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    split = hb.data.load(data_folder() / options.dataset).train
    kept, held = holdout(len(split), min(2000, len(split) // 5), 0)
    kept = kept[: options.rows or None]
    X, X_held = normalise_rows(split.X[kept]), normalise_rows(split.X[held])
    order = np.argsort(-np.bincount(split.Y.indices, minlength=split.Y.shape[1]), kind="stable")
    Y, Y_held = split.Y[kept][:, order].tocsr(), split.Y[held][:, order].tocsr()  # frequent labels share a base
    n_labels, dim, propensity = Y.shape[1], default_dim(Y.shape[1]), metrics.propensity(Y)
    found = []

    def show(letter, name, top, seconds):
        P, N = metrics.precision_at_k(Y_held, top), metrics.ndcg_at_k(Y_held, top)
        S = metrics.psp_at_k(Y_held, top, propensity)
        figures = {"P@1": P[0], "P@5": P[4], "nDCG@5": N[4], "PSP@5": S[4], "CPU seconds": seconds}
        found.append({"part": letter, "model": name, **{k: round(float(v), 2) for k, v in figures.items()}})
        print(f"{letter}  {name:62s} {P[0]:6.2f} {P[4]:6.2f} {N[4]:6.2f} {S[4]:6.2f} {seconds:7.1f} s", flush=True)

    def train(letter, name, **settings):
        if letter in options.only:
            trial = Trial(X, Y, **{"dim": dim, "epochs": options.epochs, **settings})
            show(letter, name, trial.top(X_held), trial.seconds)
            return trial
        return None

    def ridge(d, tolerance=0.05):
        began = time.process_time()
        codebook = hb.OrbitCodebook(n_labels, d, 0)
        solution = solve_ridge(X, Y, codebook, L2_BY_DATASET.get(options.dataset, 1.0), tolerance=tolerance)
        v = torch.from_numpy((X_held @ solution.weights.numpy()) + solution.bias.numpy())
        return solution, codebook, v, time.process_time() - began

    def votes(letter, name, head, h, seconds):
        began = time.process_time()
        choice = choose_extra_scores(head, h, (X_held, Y_held), (X, Y), label_trees=0)
        extra = choice.scores(X, Y, 0.0, 0)
        values, labels = map(torch.from_numpy, extra.label_scores(X_held))
        top = hb.heads.added_scores.AddedScores(head, values, labels).top_k(h, 5)[1].numpy()
        show(letter, name, top, seconds + time.process_time() - began)

    solution, codebook, v, seconds = ridge(dim)
    show("a", "ridge regression, solved", codebook.top_k(v, 5)[1].numpy(), seconds)
    train("a", "linear, squares, SGD 3", loss="squares", sgd=3, prior=False)
    train("a", "linear, squares, SGD 10", loss="squares", sgd=10, prior=False)
    train("b", "linear, softmax, SGD 3", sgd=3)
    train("b", "linear, softmax, RowAdam 0.003", feature_rate=3e-3)
    train("b", "linear, BCE over all labels, RowAdam 0.003", loss="bce", feature_rate=3e-3, prior=False)
    train("b", "linear, squared hinge over all labels, RowAdam 0.003", loss="hinge", feature_rate=3e-3, prior=False)
    one_hot = (n_labels,) if options.one_hot else ()
    for d in (100, 400, 1024, 2048, 4096, *one_hot) if "c" in options.only else ():
        if d <= 2 * n_labels:
            _, book, outputs, took = ridge(d)
            show("c", f"ridge regression, dim {d}", book.top_k(outputs, 5)[1].numpy(), took)
    train("d", "hidden layers 512, 512, softmax", hidden=(512, 512))
    one_layer = train("d", "hidden layer 512, softmax", hidden=(512,))
    train("d", "hidden layer 1024, softmax", hidden=(1024,))
    train("d", "hidden layer 512, squares", hidden=(512,), loss="squares", prior=False)
    train("e", "linear, squares, RowAdam 0.01", loss="squares", prior=False)
    hidden = {"hidden": (512,)}
    train("e", "hidden layer 512, softmax, Adagrad 0.1 for the features", **hidden, adagrad=0.1)
    train("e", "hidden layer 512, softmax, batches of 32", **hidden, batch=32)
    train("e", "hidden layer 512, softmax, batches of 512", **hidden, batch=512)
    train("e", "hidden layer 512, softmax, twice the epochs", **hidden, epochs=2 * options.epochs)
    train("e", "hidden layer 512, softmax, EMA 0.998 of the weights", **hidden, ema=0.998)
    train("e", "hidden layer 512 beside a solved linear path, squares", hidden=(512,), loss="squares", prior=False,
          start=solution, feature_rate=1e-3, epochs=min(4, options.epochs))  # fmt: skip
    train("f", "hidden layer 512, softmax, feature dropout 0.3", hidden=(512,), feature_dropout=0.3)
    train("f", "hidden layer 512, softmax, dropout 0.5", hidden=(512,), dropout=0.5)
    train("f", "hidden layer 512, softmax, crosstalk 3", hidden=(512,), crosstalk=3.0)
    train("f", "hidden layer 512, softmax, no prior", hidden=(512,), prior=False)
    for decay in (1e-5, 1e-4, 1e-3):
        train("f", f"hidden layer 512, softmax, weights times 1 - {decay:g} each step", **hidden, decay=decay)
    for smoothing in (0.05, 0.2):
        train("f", f"hidden layer 512, softmax, label smoothing {smoothing}", **hidden, smoothing=smoothing)
    train("f", "hidden layer 512, softmax, mixup 0.2", **hidden, mixup=0.2)
    query = {"hidden": (512,), "loss": "query", "prior": False}
    if one_layer is None:
        train("h", "hidden layer 512, softmax", hidden=(512,))
    train("h", "hidden layer 512, query loss", **query)
    for k in (1, 10):
        train("h", f"the same, {k} hard negatives", **query, hard_negatives=k)
    for boost in (0.1, 0.3, 0.5, 1.0):
        train("h", f"the same, label weights (n_max / n)^{boost}", **query, label_boost=boost)
    train(
        "h", "the same, 10 hard negatives, label weights (n_max / n)^0.3", **query, hard_negatives=10, label_boost=0.3
    )
    if "g" in options.only:
        plain = hb.HolographicHead(None, n_labels, dim, loss="squares", seed=0)
        votes("g", "ridge regression, solved, and votes", plain, v, seconds)
        if one_layer is not None:
            h = one_layer.outputs(X_held).clone()
            votes("g", "hidden layer 512, softmax, and votes", one_layer.head, h, one_layer.seconds)
        for name, changes in (("closed form (default)", {}), ("closed form without label trees", {"label_trees": 0})):
            began = time.process_time()
            model = hb.learn(Split(X, Y), hb.ModelConfig(text=False, **changes))
            took = time.process_time() - began
            show("g", name, model.rank(X_held, 5).ids, took)
    print(json.dumps({"dataset": options.dataset, "rows": len(kept), "held out": len(held), "dim": dim,
                      "epochs": options.epochs, "models": found}))  # fmt: skip


if __name__ == "__main__":
    main()
