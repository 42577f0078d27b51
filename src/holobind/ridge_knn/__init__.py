"""The default model: ridge regression onto label vectors, plus the mean residual of the nearest training rows (kNN)."""

from holobind.ridge_knn.fit import RidgeKnnFit, fit_ridge_knn, update_ridge_knn
from holobind.ridge_knn.forest import Forest
from holobind.ridge_knn.knn_index import KnnIndex
from holobind.ridge_knn.network import RidgeKnn
from holobind.ridge_knn.ridge import RidgeSolution, solve_ridge

__all__ = [
    "Forest",
    "KnnIndex",
    "RidgeKnn",
    "RidgeKnnFit",
    "RidgeSolution",
    "fit_ridge_knn",
    "solve_ridge",
    "update_ridge_knn",
]
