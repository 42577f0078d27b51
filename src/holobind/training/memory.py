"""What of the closed form fits into a given memory: the rest is left out, and the model's metadata says so."""

from dataclasses import dataclass, field, replace

from holobind._types import CsrArray
from holobind.errors import OptionError
from holobind.training.config import ModelConfig

PROGRAM_BYTES = 400 * 10**6  # Python, torch and compiled code
MIN_TABLE_BYTES = 64 * 10**6  # for blocks of columns, at least
KNN_ENTRY_BYTES, TREE_ENTRY_BYTES = 40, 40  # for each feature of a row, with temporary arrays
UPDATE_COPIES_OF_WEIGHTS, UPDATE_COPIES_OF_OUTPUTS = 6, 1  # of the solution that an update goes on from, and of X W


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes for tables, the config with what does not fit switched off, and why."""

    tables: int
    config: ModelConfig
    notes: list[str] = field(default_factory=list)


def plan_memory(limit: int, X: CsrArray, dim: int, config: ModelConfig) -> MemoryPlan:
    """Divide a memory of `limit` bytes: the program and the weights first, then the kNN step, then label trees."""
    weights = 4 * (X.shape[1] + 1) * dim
    left = limit - PROGRAM_BYTES - weights
    if left < MIN_TABLE_BYTES:
        needed = (PROGRAM_BYTES + weights + MIN_TABLE_BYTES) / 1e9
        raise OptionError(
            f"memory {limit / 1e9:.3g}GB is too little for {X.shape[1]:,} x {dim:,} weights; "
            f"give at least {needed:.2f}GB, or take a smaller dim"
        )
    notes = []
    entries = int(X.indptr[-1])
    # The weights of the first solution are not in memory while neighbours are searched, but those of trees are.
    if config.uses_knn and KNN_ENTRY_BYTES * entries > left:
        config = replace(config, knn_weight=0.0, label_trees=config.label_trees or 0)
        notes.append(f"the kNN step takes about {KNN_ENTRY_BYTES * entries / 1e9:.1f} GB and was left out")
    if config.label_trees != 0 and TREE_ENTRY_BYTES * entries > left:
        config = replace(config, label_trees=0)
        notes.append(f"label trees take about {TREE_ENTRY_BYTES * entries / 1e9:.1f} GB and were left out")
    update_bytes = UPDATE_COPIES_OF_WEIGHTS * weights + UPDATE_COPIES_OF_OUTPUTS * 4 * X.shape[0] * dim
    if config.update and update_bytes > left:
        config = replace(config, update=False)
        notes.append(f"what an update needs takes about {update_bytes / 1e9:.1f} GB to fit and was left out")
    return MemoryPlan(max(MIN_TABLE_BYTES, left // 3), config, notes)
