"""The steps of a fit, which `fit` puts together: ridge regressions, outputs of held-out rows, label trees, the network.

A step that takes long is stored in the checkpoint of the fit, and taken from there if the fit continues.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, IntArray, ProgressCallback, RowIndex
from holobind.codebooks import Codebook, OrbitCodebook
from holobind.data.csr import column_counts, free_memory, take_rows
from holobind.errors import OptionError
from holobind.ridge_knn.encoder import Encoder, rare_label_weights
from holobind.ridge_knn.fit_checkpoint import NO_CHECKPOINT, FitCheckpoint, Stored
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.knn_choice import FOREST_WEIGHT, HeldOutOutputs, KnnChoice, held_out_outputs
from holobind.ridge_knn.label_tree import LabelTree
from holobind.ridge_knn.network import WEIGHT_BLOCK_ROWS, RidgeKnn
from holobind.ridge_knn.ridge import DEFAULT_MEMORY, RidgeSolution, solve_ridge
from holobind.ridge_knn.sharded_rows import ShardedRows
from holobind.ridge_knn.update import NO_IDS, keep_learning, prediction_weights
from holobind.ridge_knn.update_state import CONSTANT_FEATURE, UpdateState

L2_SEARCH_DIM = 128  # of the codebook for the choice of l2, where labels are more than the dim


@dataclass(frozen=True)
class Search:
    """(tolerance, l2) of each tolerance that was chosen in turn, and (l2, nDCG@5) of every l2 that was tried."""

    steps: list[tuple[float, float]]
    validation: list[tuple[float, float]]

    def pack(self) -> Stored:
        return asdict(self), {}

    @classmethod
    def unpack(cls, state: dict[str, Any], tensors: dict[str, Tensor]) -> "Search":
        steps, validation = ([(float(a), float(b)) for a, b in state[name]] for name in ("steps", "validation"))
        if not steps or not all(0 < tolerance < 1 and 0 < l2 < np.inf for tolerance, l2 in steps):
            raise OptionError("a search ends with a tolerance and a penalty")
        return cls(steps, validation)


@dataclass(frozen=True)
class RidgeSteps:
    """Ridge regressions with the same settings on different rows, and networks of them."""

    codebook: Codebook
    rare_label_boost: float
    seed: int
    on_progress: ProgressCallback | None
    memory: int = DEFAULT_MEMORY
    processes: Processes = ALONE
    checkpoint: FitCheckpoint = NO_CHECKPOINT

    def solve(
        self,
        X: CsrArray,
        Y: CsrArray,
        l2: float | None,
        tolerance: float | None = None,
        *,
        rows: RowIndex | None = None,
        codebook: Codebook | None = None,
        start: RidgeSolution | None = None,
        overwrite_start: bool = False,
        groups: IntArray | None = None,
        search_only: bool = False,
        stage: str = "solve",
    ) -> RidgeSolution:
        """Solve with some of the rows, which are not copied, or with all."""
        weights = None
        if rows is not None:
            weights = np.zeros(X.shape[0], np.float32)
            weights[rows] = 1
        return solve_ridge(
            X,
            Y,
            codebook or self.codebook,
            l2,
            weights=weights,
            label_weights=rare_label_weights(column_counts(Y, rows), self.rare_label_boost),
            tolerance=tolerance,
            search_only=search_only,
            memory=self.memory,
            seed=self.seed,
            groups=groups,
            start=start,
            overwrite_start=overwrite_start,
            processes=self.processes,
            checkpoint=self.checkpoint,
            stage=stage,
            on_progress=self.on_progress,
        )

    def label_tree(self, X: CsrArray, Y: CsrArray, seed: int, name: str) -> LabelTree:
        tree = self.checkpoint.step(
            f"tree-{name}",
            lambda: fit_label_tree(X, Y, seed=seed, processes=self.processes, on_progress=self.on_progress),
            lambda tree: (tree.config(), tree.state_dict()),
            partial(LabelTree.of_tensors, X.shape[1], Y.shape[1]),
        )
        tree.uses_tables = self.processes.size == 1  # which take 0.1 GB each, for a few rows to evaluate
        return tree

    def search(self, X: CsrArray, Y: CsrArray, rows: RowIndex, l2: float | None, groups: IntArray | None) -> "Search":
        """Choose l2, if it is None, and the tolerance with a codebook of a smaller dim, if that saves time.

        The best l2 does not depend on crosstalk.
        """
        n_labels = Y.shape[1]
        narrow = n_labels > self.codebook.dim > L2_SEARCH_DIM
        codebook = OrbitCodebook(n_labels, L2_SEARCH_DIM, self.seed) if narrow else self.codebook

        def compute() -> Search:
            solution = self.solve(
                X, Y, l2, rows=rows, codebook=codebook, groups=groups, search_only=True, stage="search"
            )
            return Search(solution.steps, solution.validation)

        return self.checkpoint.step("search", compute, Search.pack, Search.unpack, replaces_blocks=True)

    def held_out_outputs(
        self,
        solution: RidgeSolution,
        X: CsrArray,
        Y: CsrArray,
        split: tuple[RowIndex, RowIndex],
        forest: Forest | None,
        with_knn: bool,
        stage: str,
    ) -> HeldOutOutputs:
        """The outputs of held-out rows by a solution on the kept ones."""
        kept, held = split
        X_held, Y_held = take_rows(X, held), take_rows(Y, held)
        stores_rows = with_knn or forest is not None
        trial = KnnChoice(0.0, 2.0, float(stores_rows), 0.0 if forest is None else FOREST_WEIGHT)

        def compute() -> HeldOutOutputs:
            # A forest has few features, and its leaves need all rows.
            stored = kept if stores_rows else kept[:0]
            rows = ShardedRows(X, Y, stored, self.processes if forest is None else ALONE)
            free_memory(X)
            network = self.network(solution, rows.X, rows.Y, trial, forest)
            encoder = Encoder(network, with_knn=False, label_counts=rows.label_counts)
            return held_out_outputs(encoder, rows, X_held, Y_held, with_knn)

        return self.checkpoint.step(
            f"{stage}-outputs",
            compute,
            lambda outputs: ({}, outputs.tensors()),
            lambda _, tensors: HeldOutOutputs.of_tensors(Y_held, self.codebook.dim, with_knn, tensors),
        )

    def network(
        self,
        solution: RidgeSolution,
        X: CsrArray,
        Y: CsrArray,
        choice: KnnChoice,
        forest: Forest | None,
        label_trees: Sequence[LabelTree] = (),
        tree_weight: float = 0.0,
        update: bool = False,
        keep_weights: bool = False,
    ) -> RidgeKnn:
        """The network of a solution; `update`, `keep_weights`: whether it can be updated, and keeps exact weights."""
        blocks = solution.weight_blocks(self.codebook, self.processes, WEIGHT_BLOCK_ROWS)
        W: Tensor | Iterable[Tensor] = blocks
        bias, state = solution.full_bias(self.codebook, self.processes), None
        if update and not keep_weights:
            state = UpdateState.of_rows(
                (NO_IDS, NO_IDS), NO_IDS, n_rows=X.shape[0], n_labels=Y.shape[1], l2=solution.l2
            )
        elif update:
            start = np.concatenate([*(block.numpy() for block in blocks), bias.numpy()[None] / CONSTANT_FEATURE])
            label_weights = rare_label_weights(column_counts(Y), self.rare_label_boost)
            state = keep_learning(start, X, Y, self.codebook, label_weights, solution.l2)
            W, bias = prediction_weights(state, self.codebook.dim)
        network = RidgeKnn.from_weights(
            W,
            bias,
            X,
            Y,
            knn_weight=choice.knn_weight,
            similarity_power=choice.similarity_power,
            idf_power=choice.idf_power,
            rare_label_boost=self.rare_label_boost,
            forest=forest,
            forest_weight=choice.forest_weight,
            label_trees=label_trees,
            tree_weight=tree_weight,
            learning_on=state,
            seed=self.seed,
            processes=self.processes,
        )
        network.max_table_bytes = self.memory // self.processes.size
        return network
