"""Trained networks with a linear path that is solved in closed form, and what is added to their scores.

The default recipe of the networks fc, cnn and lstm:

1. solve the linear path on kept rows: ridge regression, with the penalty and the tolerance of the closed form, and
   with the residuals of neighbours of held-out rows, which make up for a loose tolerance (`ridge_knn.fit`);
2. train the hidden layers, or the network on tokens, beside it on the squares loss, of which the solved path is the
   optimum: it stays fixed;
3. choose the weight of the neighbours' residuals, and label trees, on held-out rows (`ridge_knn.choose_residuals`),
   and calibrate. Networks without such a path, and other losses, have votes (`ridge_knn.choose_extra_scores`);
4. solve the linear path again on all rows; all rows are neighbours.

Gradient steps reach the accuracy of ridge regression, too, but they take longer (experiments/trained_gap.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind._processes import ALONE
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.data.batches import ExampleRows, Examples, prediction_batches
from holobind.data.csr import (
    binary_labels,
    is_mapped,
    normalise_rows,
    normalise_rows_in_file,
    scale_columns,
    take_rows,
)
from holobind.heads import HolographicHead
from holobind.model import MAX_BATCH_ROWS, Model
from holobind.ridge_knn import (
    ExtraChoice,
    RidgeSolution,
    choose_extra_scores,
    choose_residuals,
    default_choice,
    feature_rows,
    rare_label_weights,
    suits_trees,
)
from holobind.ridge_knn.encoder import LinearEncoder, quantised
from holobind.ridge_knn.fit import validate
from holobind.ridge_knn.fit_steps import RidgeSteps
from holobind.ridge_knn.knn_choice import HeldOutOutputs, held_out_outputs
from holobind.ridge_knn.sharded_rows import ShardedRows
from holobind.training.config import ModelConfig


class PathSteps(RidgeSteps):
    """Ridge regressions for the linear path of a network: for any codebook, and without a network of their own."""

    def held_out_outputs(
        self,
        solution: RidgeSolution,
        X: CsrArray,
        Y: CsrArray,
        split: tuple[RowIndex, RowIndex],
        forest: Any,
        with_knn: bool,
        stage: str,
    ) -> HeldOutOutputs:
        kept, held = split
        rows = ShardedRows(X, Y, kept if with_knn else kept[:0], ALONE)
        targets = scale_columns(rows.Y, rare_label_weights(rows.label_counts, self.rare_label_boost))
        W, bias = np.ascontiguousarray(solution.weights.numpy()), solution.bias.numpy()
        encoder = LinearEncoder(quantised(W), bias, self.codebook, rows.X, targets)
        return held_out_outputs(encoder, rows, take_rows(X, held), take_rows(Y, held), with_knn)


@dataclass
class SolvedPath:
    """The linear path of a model, solved on rows of norm 1; the settings are chosen once and used for all rows.

    X, Y       all rows and, in the head's ids, their labels
    solution   the ridge regression that the path has now
    outputs    of held-out rows, with the mean residuals of their neighbours; None without held-out rows
    """

    model: Model
    X: CsrArray
    Y: CsrArray
    config: ModelConfig
    on_progress: ProgressCallback | None = None
    solution: RidgeSolution | None = None
    outputs: HeldOutOutputs | None = None

    def solve(self, kept: RowIndex, held: RowIndex, groups: IntArray | None) -> dict[str, Any]:
        """Choose the penalty and the tolerance, and solve on kept rows; return the solver's summary."""
        steps, config = self._steps(), self.config
        if len(held):
            found = validate(steps, self.X, self.Y, [(kept, held)], config.l2, config.knn_weight, False, groups)
            (self.outputs,), self.solution, tried = found.outputs, found.solution, found.l2_validation
        else:
            self.solution = steps.solve(self.X, self.Y, config.l2, rows=kept, groups=groups)
            tried = self.solution.validation
        assert self.solution is not None
        self._add(self.solution.weights, self.solution.bias)
        return replace(self.solution, validation=tried).summary()

    def refit(self) -> None:
        """Solve on all rows, with the settings of the kept ones; the hidden layers stay as they are."""
        before = self.solution
        assert before is not None
        self.solution = self._steps().solve(self.X, self.Y, before.l2, before.tolerance, start=before)
        self._add(self.solution.weights - before.weights, self.solution.bias - before.bias)

    def _steps(self) -> PathSteps:
        codebook = self.model.head.ridge_codebook()
        return PathSteps(codebook, self.config.rare_label_boost, self.config.seed, self.on_progress)

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
    """Keep the linear path beside the hidden layers of a network out of training, or let it train again."""
    path = model.network.linear_path()
    if getattr(model.network, "linear_skip", None) is not None and path is not None:
        for tensor in path:
            tensor.requires_grad_(not frozen)


@dataclass
class Extras:
    """What is added to a trained model, chosen on held-out rows.

    path   the solved linear path, if there is one: neighbours then add their residuals, and vote otherwise
    """

    model: Model
    examples: Examples
    Y: CsrArray
    config: ModelConfig
    on_progress: ProgressCallback | None = None
    path: SolvedPath | None = None
    choice: ExtraChoice | None = None

    def choose(self, kept: RowIndex, held: RowIndex) -> dict[str, Any]:
        """Choose the settings and take kept rows as neighbours; return a summary."""
        config, model = self.config, self.model
        knn_weight, label_trees = config.knn_weight, config.label_trees
        if not config.chooses_extra_scores:
            knn_weight, label_trees = knn_weight or 0.0, label_trees or 0
        if knn_weight == 0 and label_trees is None:
            label_trees = 0
        if knn_weight == 0 and not label_trees:
            return {}
        X, Y = self._rows(kept)
        order, codebook = model.label_order, model.head.ridge_codebook()
        settings: dict[str, Any] = {
            "head_labels": None if order is None else np.argsort(order),
            "knn_weight": knn_weight,
            "label_trees": label_trees,
            "rare_label_boost": config.rare_label_boost,
            "try_trees": model.network.n_features is not None and suits_trees(len(kept)),
            "seed": config.seed,
            "on_progress": self.on_progress,
        }
        if not len(held):
            self.choice = default_choice(knn_weight, label_trees, self.path is not None)
        elif self.path is not None and self.path.outputs is not None:
            outputs = replace(self.path.outputs, linear=self._outputs(held))
            self.choice = choose_residuals(codebook, outputs, self._rows(held)[0], (X, Y), **settings)
            self.path.outputs = None  # which may be large
        else:
            self.choice = choose_extra_scores(model.head, self._outputs(held), self._rows(held), (X, Y), **settings)
        model.extra_scores = self.choice.scores(X, Y, config.rare_label_boost, config.seed, n_trees=1)
        return {"extra_scores": self.choice.summary()}

    def refit(self) -> None:
        """Take all rows as neighbours, and fit the trees that are missing to them."""
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
