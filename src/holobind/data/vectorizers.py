"""Text vectorisers of scikit-learn as features of a model: stored as JSON and a vocabulary, never as a pickle.

`TfidfVectorizer`, `CountVectorizer` and `HashingVectorizer` are stored if their settings are plain: numbers, names and
lists of words. A function of the caller's (`tokenizer=`, `preprocessor=`, a callable `analyzer=`) cannot be stored, and
is refused before anything is trained. So is a regular expression that a hostile file could make slow.

Counts are made by scikit-learn; the weights by its documented formula:

    x[f] = idf[f] (1 + ln count[f]),    x / |x|        each step as the settings say
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from holobind._checks import check_names
from holobind._types import CsrArray, FloatArray
from holobind.data.csr import checked_csr, scale_columns
from holobind.errors import DataError, OptionError

CLASSES: dict[str, Any] = {kind.__name__: kind for kind in (TfidfVectorizer, CountVectorizer, HashingVectorizer)}
INSTEAD = "transform the texts yourself, and fit on the matrix"
MAX_NGRAM = 20
MAX_STOP_WORDS = 100_000
MAX_PATTERN_CHARACTERS = 100
MAX_UNBOUNDED_REPEATS = 2  # of a token pattern: the time to search a text of n characters is at most n^3
# The settings that decide how texts become counts, and counts rows; the others matter only when it is fitted.
COUNT_SETTINGS = ("strip_accents", "lowercase", "stop_words", "token_pattern", "ngram_range", "analyzer", "binary")
ROW_SETTINGS = {
    "TfidfVectorizer": ("norm", "use_idf", "sublinear_tf"),
    "CountVectorizer": (),
    "HashingVectorizer": ("norm", "alternate_sign", "n_features"),
}


class SklearnFeatures:
    """The features of a fitted vectoriser of scikit-learn.

    kind       the name of its class
    settings   its settings, as JSON values
    words      its vocabulary in order of the columns; empty for a HashingVectorizer
    idf        (words) float32, where it has them
    """

    words_only = False
    analyzer = "scikit-learn"

    def __init__(
        self, kind: str, settings: dict[str, Any], words: Sequence[str] = (), idf: FloatArray | None = None
    ) -> None:
        wanted = {*COUNT_SETTINGS, *ROW_SETTINGS.get(kind, ())}
        if kind not in CLASSES or not isinstance(settings, dict) or set(settings) != wanted:
            raise OptionError(f"{kind!r:.40} with the settings {settings!r:.80} is no vectoriser that can be stored")
        self.kind, self.settings, self.words = kind, _checked(settings), list(words)
        self.idf = None if idf is None else np.asarray(idf, np.float32)
        if (self.idf is not None and len(self.idf) != len(self.words)) or (not words and kind != "HashingVectorizer"):
            raise DataError(f"a {kind} with {len(words)} words does not fit its idf")
        if (self.idf is None) == bool(settings.get("use_idf")):
            raise DataError(f"a {kind} has idf values if, and only if, it uses them")
        counting = {name: self.settings[name] for name in COUNT_SETTINGS}
        counting["ngram_range"] = tuple(counting["ngram_range"])
        if kind == "HashingVectorizer":
            self._counter: Any = HashingVectorizer(
                **counting, **{name: self.settings[name] for name in ROW_SETTINGS[kind]}, dtype=np.float32
            )
        else:
            self._counter = CountVectorizer(**counting, vocabulary=self.words, dtype=np.float32)
            if len(set(self.words)) != len(self.words):
                raise DataError("a vocabulary has each word once")

    @property
    def n_features(self) -> int:
        return int(self.settings["n_features"]) if self.kind == "HashingVectorizer" else len(self.words)

    @classmethod
    def fit(cls, vectoriser: Any, texts: Sequence[str]) -> tuple["SklearnFeatures", CsrArray]:
        """Fit a copy of a vectoriser. Returns what is stored of it, and the features of the texts."""
        from sklearn.base import clone

        settings = plain_settings(vectoriser)
        fitted = clone(vectoriser)
        try:
            fitted.fit(texts)
        except ValueError as error:  # no words are left, for example
            raise DataError(f"{type(vectoriser).__name__}: {' '.join(str(error).split())[:160]}") from error
        vocabulary = getattr(fitted, "vocabulary_", {})
        words = sorted(vocabulary, key=vocabulary.__getitem__)
        check_names(words)
        found = cls(type(vectoriser).__name__, settings, words, fitted.idf_ if settings.get("use_idf") else None)
        return found, found.transform(texts)

    def transform(self, texts: Sequence[str]) -> CsrArray:
        """The features of texts.  Shapes: texts -> sparse (texts, features)"""
        if not len(texts):
            return checked_csr(self._counter.transform([""])[:0], "the features")
        rows = checked_csr(self._counter.transform(texts), "the features").astype(np.float32, copy=False)
        if self.settings.get("sublinear_tf"):
            rows.data = 1 + np.log(rows.data)
        if self.idf is not None:
            rows = scale_columns(rows, self.idf)
        norm = self.settings.get("norm") if self.kind == "TfidfVectorizer" else None
        if norm is not None:
            from sklearn.preprocessing import normalize

            rows = normalize(rows, norm, copy=False)
        return checked_csr(rows, "the features")

    def config(self) -> dict[str, Any]:
        """JSON values that, with the words and the idf, build it again."""
        return {"kind": self.kind, "settings": self.settings}

    def unfitted(self) -> Any:
        """A vectoriser of scikit-learn with these settings."""
        settings = {**self.settings, "ngram_range": tuple(self.settings["ngram_range"])}
        return CLASSES[self.kind](**settings)


def plain_settings(vectoriser: Any) -> dict[str, Any]:
    """The settings of a vectoriser as JSON values; an OptionError says which of them cannot be stored."""
    kind = type(vectoriser).__name__
    if type(vectoriser) is not CLASSES.get(kind):
        raise OptionError(f"a model can store {', '.join(CLASSES)} of scikit-learn; got {kind[:60]}: {INSTEAD}")
    for name in ("tokenizer", "preprocessor"):
        if getattr(vectoriser, name) is not None:
            raise OptionError(f"{kind}: {name} is a function, which no model file can store; {INSTEAD}")
    if vectoriser.input != "content":
        raise OptionError(f"{kind}: input must be 'content', because X has texts; got {vectoriser.input!r:.40}")
    names = (*COUNT_SETTINGS, *ROW_SETTINGS[kind])
    settings = {name: getattr(vectoriser, name) for name in names}
    settings["ngram_range"] = list(settings["ngram_range"])
    if isinstance(settings["stop_words"], frozenset | set | tuple):
        settings["stop_words"] = sorted(settings["stop_words"])
    try:
        return _checked(settings)
    except OptionError as error:
        raise OptionError(f"{kind}: {error}; {INSTEAD}") from error


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings, if every one is plain: a model file may hold anything."""
    ngrams, stop_words = settings["ngram_range"], settings["stop_words"]
    rules = {
        "analyzer": settings["analyzer"] in ("word", "char", "char_wb"),
        "strip_accents": settings["strip_accents"] in (None, "ascii", "unicode"),
        "norm": settings.get("norm") in (None, "l1", "l2"),
        "ngram_range": isinstance(ngrams, list)
        and len(ngrams) == 2
        and all(type(n) is int for n in ngrams)
        and 1 <= ngrams[0] <= ngrams[1] <= MAX_NGRAM,
        "stop_words": stop_words in (None, "english")
        or (
            isinstance(stop_words, list)
            and len(stop_words) <= MAX_STOP_WORDS
            and all(isinstance(word, str) for word in stop_words)
        ),
        "token_pattern": _is_fast_pattern(settings["token_pattern"])
        or (settings["token_pattern"] is None and settings["analyzer"] != "word"),  # then nothing reads it
        "n_features": type(settings.get("n_features", 1)) is int and 1 <= settings.get("n_features", 1) <= 1 << 28,
    }
    for name, value in settings.items():
        if not rules.get(name, isinstance(value, bool)):
            raise OptionError(f"its {name}, {value!r:.60}, cannot be stored safely")
    return dict(settings)


def _is_fast_pattern(pattern: Any) -> bool:
    """Whether a regular expression has no groups, and few repeats: no text can make it slow."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARACTERS:
        return False
    body = pattern.removeprefix("(?u)")
    if body.startswith("(") and body.endswith(")") and not body.startswith("(?"):  # one group: what is kept of a match
        body = body[1:-1]
    body = re.sub(r"\\.", "", body, flags=re.DOTALL)  # escaped characters neither group nor repeat
    if re.search(r"[(|)]", body) or len(re.findall(r"[*+}]", body)) > MAX_UNBOUNDED_REPEATS:
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
