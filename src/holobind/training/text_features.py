"""Features of texts for training: tf-idf, and beside it the embeddings of a frozen encoder where one is given."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from holobind._types import CsrArray, FloatArray, ProgressCallback
from holobind.data import Split, Tfidf
from holobind.data.csr import normalise_rows
from holobind.data.holdout import MAX_HELD_OUT_ROWS, holdout
from holobind.errors import DataError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import fit_ridge_knn
from holobind.training.config import ModelConfig

if TYPE_CHECKING:
    from holobind.data.encoder_features import EncoderFeatures
    from holobind.data.vectorizers import SklearnFeatures

ENCODER_WEIGHTS = (0.0, 1.0, 2.0, 3.0)
DEFAULT_ENCODER_WEIGHT = 2.0  # where there are too few rows to choose it
MIN_ROWS_TO_CHOOSE = 100
MAX_ROWS_TO_CHOOSE = 12_000  # that the models of the choice are fitted to
CHOICE_DIM = 512  # of their codebooks, at most


@dataclass(frozen=True)
class TextFeatures:
    """The features of a split, how texts become such features, and a summary as JSON values for a model's metadata."""

    X: CsrArray
    tfidf: "Tfidf | SklearnFeatures | None"
    encoder: "EncoderFeatures | None" = None
    summary: dict[str, Any] = field(default_factory=dict)


def make_features(
    split: Split,
    config: ModelConfig,
    tfidf: "Tfidf | SklearnFeatures | None",
    on_progress: ProgressCallback | None = None,
) -> TextFeatures:
    """The data's features or tf-idf features of its texts, as a config selects, and embeddings beside them.

    tfidf   how the features of the split were made from its texts, where they were
    """
    X = split.X
    if (config.text or config.encoder is not None) and split.texts is None:
        option = "--text" if config.encoder is None else "--encoder"
        raise DataError(f"the data has no texts to make features of; leave out {option}")
    if config.text or (_prefers_text(config) and not _serves(tfidf, config)):
        fitted, features = Tfidf.fit(split.texts or [], analyzer=config.analyzer)
        if config.text or fitted.words:
            tfidf, X = fitted, features
    summary = {} if tfidf is None else {"text": _summary(tfidf)}
    if config.encoder is None or config.encoder_weight == 0:
        return TextFeatures(X, tfidf, None, summary)
    return _with_encoder(TextFeatures(X, tfidf, None, summary), split, config, on_progress)


def _summary(tfidf: "Tfidf | SklearnFeatures") -> dict[str, Any]:
    streamed = tfidf.streamed if isinstance(tfidf, Tfidf) else None
    return {"analyzer": tfidf.analyzer} | ({} if streamed is None else {"streamed": streamed.summary()})


def _prefers_text(config: ModelConfig) -> bool:
    return config.text is None and (config.uses_knn or config.chooses_extra_scores or config.encoder is not None)


def _serves(tfidf: "Tfidf | SklearnFeatures | None", config: ModelConfig) -> bool:
    """Whether features that were made from texts before are those that a config selects."""
    return tfidf is not None and not tfidf.words_only and config.analyzer in ("auto", tfidf.analyzer)


def _with_encoder(
    features: TextFeatures, split: Split, config: ModelConfig, on_progress: ProgressCallback | None
) -> TextFeatures:
    """The features with embeddings beside them, unless held-out rows are better without."""
    from holobind.data.encoder_features import EncoderFeatures, beside
    from holobind.data.sentence_encoder import SentenceEncoder

    assert config.encoder is not None and split.texts is not None
    encoder = SentenceEncoder.open(config.encoder)
    embeddings = encoder.embed(split.texts, cache=True, on_progress=on_progress)
    tried: list[tuple[float, float]] = []
    weight = config.encoder_weight
    if weight is None:
        weight, tried = choose_weight(features.X, embeddings, split.Y, config.seed, on_progress)
    chosen = {
        "name": encoder.name,
        "digest": encoder.digest,
        "weight": weight,
        "validation": [[tried_weight, round(score, 3)] for tried_weight, score in tried],
    }
    summary = features.summary | {"encoder": chosen}
    if not weight:
        return TextFeatures(features.X, features.tfidf, None, summary)
    X = beside(features.X, embeddings, weight)
    return TextFeatures(X, features.tfidf, EncoderFeatures.of(encoder, weight), summary)


def choose_weight(
    X: CsrArray, embeddings: FloatArray, Y: CsrArray, seed: int, on_progress: ProgressCallback | None = None
) -> tuple[float, list[tuple[float, float]]]:
    """The weight of embeddings beside features with the best nDCG@5 on held-out rows, and (weight, nDCG@5) of all.

    The models that are compared have fewer rows and dimensions than the final one.

    Shapes: sparse (n, f), (n, dim), sparse (n, L)
    """
    from holobind.data.encoder_features import beside

    n = X.shape[0]
    if n < MIN_ROWS_TO_CHOOSE:
        return DEFAULT_ENCODER_WEIGHT, []
    kept, held = holdout(n, min(MAX_HELD_OUT_ROWS, n // 5), seed)
    kept = np.sort(np.random.default_rng([seed, 1]).permutation(kept)[:MAX_ROWS_TO_CHOOSE])
    tried = []
    for i, weight in enumerate(ENCODER_WEIGHTS):
        if on_progress:
            on_progress("choosing the weight of the encoder", i / len(ENCODER_WEIGHTS))
        rows, held_rows = (normalise_rows(beside(X[part], embeddings[part], weight)) for part in (kept, held))
        network = fit_ridge_knn(rows, Y[kept], dim=min(CHOICE_DIM, Y.shape[1]), seed=seed).network
        ranked = network.codebook().top_k(network.encode(held_rows), min(5, Y.shape[1]))[1].numpy()
        tried.append((weight, float(ndcg_at_k(Y[held], ranked)[-1])))
    if on_progress:
        on_progress("choosing the weight of the encoder", 1.0)
    return max(tried, key=lambda pair: pair[1])[0], tried
