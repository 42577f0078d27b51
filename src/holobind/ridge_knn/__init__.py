"""The default model: ridge regression onto label vectors, plus the mean residual of the nearest training rows (kNN).

ridge         ridge regression onto sums of label vectors
knn_index     search for the nearest training rows
forest        trees of quantised linear splits; `fit_forest` trains them
label_tree    trees of linear classifiers over labels; `fit_label_tree` fits them, `tree_choice` weighs them
fit           all of it from data: the penalty, the neighbours (`knn_choice`), the trees, in `fit_steps`;
              `fit_checkpoint` resumes it
update        more rows and labels, or fewer, without another fit; `update_state` is what that needs
estimate      the score on held-out rows with its interval, and near-duplicates
extra_scores  neighbours and label trees beside any trained network; `extra_choice` chooses them
network       the network: packed weights and training rows
encoder       fast outputs of the network
quantise      weights in two or four bits
"""

from holobind.codebooks.registry import default_dim
from holobind.ridge_knn.encoder import rare_label_weights
from holobind.ridge_knn.estimate import HeldOut
from holobind.ridge_knn.extra_choice import ExtraChoice, choose_extra_scores, choose_residuals, default_choice
from holobind.ridge_knn.extra_scores import ExtraScores, feature_rows
from holobind.ridge_knn.fit import RidgeKnnFit, default_knn_dim, fit_ridge_knn
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.knn_choice import KnnChoice
from holobind.ridge_knn.knn_index import KnnIndex
from holobind.ridge_knn.label_tree import LabelTree
from holobind.ridge_knn.network import RidgeKnn
from holobind.ridge_knn.ridge import DEFAULT_MEMORY, RidgeSolution, solve_ridge
from holobind.ridge_knn.tree_choice import suits_trees
from holobind.ridge_knn.update import add_rows, refit_trees, remove_labels, remove_rows

__all__ = [
    "DEFAULT_MEMORY",
    "ExtraChoice",
    "ExtraScores",
    "Forest",
    "HeldOut",
    "KnnChoice",
    "KnnIndex",
    "LabelTree",
    "RidgeKnn",
    "RidgeKnnFit",
    "RidgeSolution",
    "add_rows",
    "choose_extra_scores",
    "choose_residuals",
    "default_choice",
    "default_dim",
    "default_knn_dim",
    "feature_rows",
    "fit_ridge_knn",
    "rare_label_weights",
    "refit_trees",
    "remove_labels",
    "remove_rows",
    "solve_ridge",
    "suits_trees",
]
