"""Features of texts, for datasets that bring none."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from holobind.data.dataset import Matrix, matrix


def tfidf(*texts: Sequence[str]) -> tuple[list[Matrix], list[str]]:
    """Features of texts: sublinear tf-idf with L2 rows, fitted on the first collection. Words are runs of letters
    and digits, at least two, in lower case; an underscore ends a word."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\W_]{2,}", dtype=np.float32)
    first, *others = texts
    try:
        fitted = vectorizer.fit_transform(first)
    except ValueError:  # no words at all
        nothing = np.empty(0, np.float32)
        return [matrix(nothing, nothing, np.zeros(len(t) + 1), (len(t), 0)) for t in texts], []
    found = []
    for m in (fitted, *map(vectorizer.transform, others)):
        rows = sparse.csr_array(m)
        rows.sort_indices()
        found.append(matrix(rows.data, rows.indices, rows.indptr, rows.shape))
    return found, vectorizer.get_feature_names_out().tolist()
