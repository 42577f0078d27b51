"""Trained networks with a linear path that is solved in closed form, and what is added to their scores.

The default recipe of the networks fc, cnn and lstm:

1. solve the linear path on kept rows: ridge regression, to a smaller tolerance than in the closed form, whose
   residuals of neighbours make up for a loose one; votes do not;
2. train the hidden layers, or the network on tokens, beside it on the squares loss, of which the solved path is the
   optimum: it stays fixed;
3. choose votes of neighbours and label trees on held-out rows (`ridge_knn.choose_extra_scores`), and calibrate;
4. solve the linear path again on all rows; all rows vote.

Gradient steps reach the accuracy of ridge regression, too, but they take longer (experiments/trained_gap.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.codebooks import OrbitCodebook
from holobind.data.batches import ExampleRows, Examples, prediction_batches
from holobind.data.csr import binary_labels, is_mapped, normalise_rows, normalise_rows_in_file
from holobind.heads import HolographicHead
from holobind.model import MAX_BATCH_ROWS, Model
from holobind.ridge_knn import (
    ExtraChoice,
    RidgeSolution,
    choose_extra_scores,
    default_choice,
    feature_rows,
    rare_label_weights,
    solve_ridge,
    suits_trees,
)
from holobind.ridge_knn.fit_steps import L2_SEARCH_DIM
from holobind.training.config import ModelConfig


@dataclass
class SolvedPath:
    """The linear path of a model, solved on rows of norm 1; the settings are chosen once and used for all rows.

    X, Y   all rows and, in the head's ids, their labels
    """

    model: Model
    X: CsrArray
    Y: CsrArray
    config: ModelConfig
    on_progress: ProgressCallback | None = None
    solution: RidgeSolution | None = None

    def solve(self, kept: RowIndex, groups: IntArray | None) -> dict[str, Any]:
        """Choose the penalty and solve on kept rows; return the solver's summary."""
        head, X, Y = self.model.head, self.X[kept], self.Y[kept]
        codebook = head.ridge_codebook()
        n_labels, seed = Y.shape[1], self.config.seed
        # The best penalty does not depend on crosstalk: it is chosen with fewer dimensions, if that saves time.
        narrow = n_labels > codebook.dim > L2_SEARCH_DIM and isinstance(codebook, OrbitCodebook)
        searched = solve_ridge(
            X,
            Y,
            OrbitCodebook(n_labels, L2_SEARCH_DIM, seed) if narrow else codebook,
            self.config.l2,
            label_weights=self._label_weights(Y),
            seed=seed,
            groups=None if groups is None else groups[kept],
            on_progress=self.on_progress,
        )
        self.solution = self._solve(X, Y, searched) if narrow else searched
        self._add(self.solution.weights, self.solution.bias)
        return replace(self.solution, validation=searched.validation).summary()

    def refit(self) -> None:
        """Solve on all rows, with the settings of the kept ones; the hidden layers stay as they are."""
        before = self.solution
        assert before is not None
        self.solution = self._solve(self.X, self.Y, before, start=before)
        self._add(self.solution.weights - before.weights, self.solution.bias - before.bias)

    def _solve(
        self, X: CsrArray, Y: CsrArray, settings: RidgeSolution, start: RidgeSolution | None = None
    ) -> RidgeSolution:
        return solve_ridge(
            X,
            Y,
            self.model.head.ridge_codebook(),
            settings.l2,
            label_weights=self._label_weights(Y),
            seed=self.config.seed,
            start=start,
            on_progress=self.on_progress,
        )

    def _label_weights(self, Y: CsrArray) -> Any:
        return rare_label_weights(np.bincount(Y.indices, minlength=Y.shape[1]), self.config.rare_label_boost)

    def _add(self, weights: Tensor, bias: Tensor) -> None:
        path = self.model.network.linear_path()
        assert path is not None
        with torch.no_grad():
            for tensor, change in zip(path, self.model.head.from_ridge(weights, bias), strict=True):
                tensor.add_(change)


def solved_path(model: Model, X: CsrArray, Y: CsrArray, config: ModelConfig, on_progress: Any = None) -> SolvedPath:
    """The linear path of an untrained model, whose weights are 0, for rows of features."""
    if config.normalise:
        X = normalise_rows_in_file(X) if is_mapped(X) else normalise_rows(X)
    path = SolvedPath(model, X, model.to_head_labels(binary_labels(Y)), config, on_progress)
    if isinstance(model.head, HolographicHead):
        model.head.set_label_weights(torch.from_numpy(path._label_weights(path.Y)))
    return path


def freeze_linear_path(model: Model, frozen: bool) -> None:
    """Keep the linear skip of a network out of training, or let it train again."""
    skip = getattr(model.network, "linear_skip", None)
    if skip is not None:
        skip.weight.requires_grad_(not frozen)


@dataclass
class Extras:
    """What is added to the scores of a trained model, chosen on held-out rows."""

    model: Model
    examples: Examples
    Y: CsrArray
    config: ModelConfig
    on_progress: ProgressCallback | None = None
    choice: ExtraChoice | None = None

    def choose(self, kept: RowIndex, held: RowIndex) -> dict[str, Any]:
        """Choose the settings and let kept rows vote; return a summary."""
        config, model = self.config, self.model
        knn_weight, label_trees = config.knn_weight, config.label_trees
        if not config.chooses_extra_scores:
            knn_weight, label_trees = knn_weight or 0.0, label_trees or 0
        if knn_weight == 0 and label_trees is None:
            label_trees = 0
        if knn_weight == 0 and not label_trees:
            return {}
        X, Y = self._rows(kept)
        if len(held):
            order = model.label_order
            self.choice = choose_extra_scores(
                model.head,
                self._outputs(held),
                self._rows(held),
                (X, Y),
                head_labels=None if order is None else np.argsort(order),
                knn_weight=knn_weight,
                label_trees=label_trees,
                try_trees=model.network.n_features is not None and suits_trees(len(kept), model.head.ridge_codebook()),
                rare_label_boost=config.rare_label_boost,
                seed=config.seed,
                on_progress=self.on_progress,
            )
        else:
            self.choice = default_choice(knn_weight, label_trees)
        model.extra_scores = self.choice.scores(X, Y, config.rare_label_boost, config.seed, n_trees=1)
        return {"extra_scores": self.choice.summary()}

    def refit(self) -> None:
        """Let all rows vote, and fit the trees that are missing to them."""
        if self.choice is not None:
            X, Y = self._rows(np.arange(len(self.examples)))
            config = self.config
            self.model.extra_scores = self.choice.scores(X, Y, config.rare_label_boost, config.seed, self.on_progress)

    def _rows(self, rows: RowIndex) -> tuple[CsrArray, CsrArray]:
        network = self.model.network
        n_features = network.n_features or network.config()["vocab_size"]
        return normalise_rows(feature_rows(self.examples, rows, n_features)), binary_labels(self.Y[rows])

    def _outputs(self, rows: RowIndex) -> Tensor:
        """Outputs of the network.  Shapes: (n) -> (n, in)"""
        network, examples = self.model.network, ExampleRows(self.examples, rows)
        batches = list(prediction_batches(examples, np.arange(len(rows)), MAX_BATCH_ROWS))
        with torch.inference_mode():
            found = torch.cat([network.predict_rows(examples, batch).cpu() for batch in batches])
        return found[np.argsort(np.concatenate(batches), kind="stable")]
