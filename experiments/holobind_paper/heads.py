"""Holographic heads that only experiments need: keys without projection, kept orthogonal, exact inverse, balance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holobind import algebra, metrics
from holobind.codebooks import Codebook, DenseCodebook
from holobind.heads import HolographicHead
from holobind.model import Model
from holobind.networks import FC
from holobind.training import loop
from holobind_paper import training
from holobind_paper.jobs import PAPER_HIDDEN, Job, Row, configs

ORTHOGONAL_STEPS = 20  # alternating projections; |<p, m>| is then below 1e-4


class ExactInverseHead(HolographicHead):
    """Unbinds p and m by the exact inverse, 1 / F(p) at every frequency.

    exact unbinding of s from p  =  approximate unbinding of s from q,      F(q) = 1 / conj(F(p))
    """

    def _keys(self) -> tuple[Tensor, Tensor]:
        p, m = super()._keys()
        return exact(p), exact(m)


class FreeKeysHead(HolographicHead):
    """p and m are learned and not projected, while label vectors are unitary: the released code's default."""

    def _keys(self) -> tuple[Tensor, Tensor]:
        return self.p, self.m


class OrthogonalKeysHead(HolographicHead):
    """p and m are learned, projected, and kept orthogonal to each other."""

    def _keys(self) -> tuple[Tensor, Tensor]:
        p, m = super()._keys()
        for _ in range(ORTHOGONAL_STEPS):
            m = algebra.unitary(m - (m @ p) / (p @ p) * p)
        return p, m


class BalancedHead(HolographicHead):
    """The query loss J_p + b J_n with another balance b than 1."""

    balance = 1.0

    def _set_loss(self, h: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        s = self(h)
        p, m = self._keys()
        total = self.codebook.encode(labels, offsets)
        in_present = algebra.unbind(s, p) * total  # cos(p* s, c) = <p* s, c> / |s|, summed over the labels c
        lengths = torch.linalg.vector_norm(s, dim=1).clamp(min=1e-12)
        j_p = len(labels) - (in_present.sum(1) / lengths).sum()
        j_n = algebra.similarity(algebra.unbind(s, m), total).sum()
        return (j_p + self.balance * j_n) / len(s)


def exact(p: Tensor) -> Tensor:
    """The q with which `algebra.unbind` computes the exact unbinding from p."""
    return algebra.involution(algebra.inverse(p))


def scaled_naive(n_labels: int, dim: int, seed: int, scale: float, learned: bool) -> Codebook:
    """Gaussian label vectors of standard deviation scale / sqrt(d), without projection."""
    vectors = DenseCodebook.naive(n_labels, dim, seed).table.detach() * scale
    return DenseCodebook(vectors, trainable=learned, project=False)


def train_with(make_head: Callable[[Job, int, int], HolographicHead]) -> Callable[[Job, Path], Row]:
    """How to train a job whose head is made by `make_head(job, inputs, n_labels)`."""

    def compute(job: Job, out: Path) -> Row:
        dataset = training.load(job.source)
        config, train_config = configs(job.options)
        network = FC(dataset.n_features, config.hidden or PAPER_HIDDEN, seed=config.seed)
        head = make_head(job, network.out_features, dataset.n_labels)
        model = Model(network, head, metrics.frequencies(dataset.train.Y), normalise=config.normalise)
        state = loop.fit(model, model.examples(dataset.train.X), dataset.train.Y, train_config)
        model.metadata = {"training": {"history": state.history, "best epoch": state.best_epoch + 1}}
        row = training.evaluated(model.eval(), job.source)
        return row | {"final loss": state.history[-1]["loss"]} | keys_and_lengths(head)

    return compute


def keys_and_lengths(head: HolographicHead) -> dict[str, Any]:
    """The cosine of p and m, and the mean length of the label vectors, after training."""
    with torch.no_grad():
        p, m = head._keys()
        ids = torch.arange(min(head.n_labels, 1000), device=head.codebook.device)
        lengths = torch.linalg.vector_norm(head.codebook.vectors(ids), dim=1)
        return {"cos(p, m)": float(algebra.similarity(p, m)), "label length": float(lengths.mean())}


def options_of(job: Job) -> dict[str, Any]:
    """The arguments of a head of these options."""
    config, _ = configs(job.options)
    return {
        "dim": config.dim,
        "codebook": config.codebook,
        "loss": config.loss,
        "seed": config.seed,
        "trainable": config.trainable,
    }
