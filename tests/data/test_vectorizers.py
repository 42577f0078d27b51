"""Vectorisers of scikit-learn: stored as JSON and words, with the same features; functions are refused."""

import json
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from holobind.data.vectorizers import SklearnFeatures
from holobind.errors import DataError, OptionError

TEXTS = ["Red apples, red pears", "green Äpfel and a fish", "the fish of the sea", "", "紅茶の本", "red"]
VECTORISERS = [
    TfidfVectorizer(),
    TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), stop_words="english", norm="l1"),
    TfidfVectorizer(analyzer="char", ngram_range=(1, 3), use_idf=False, min_df=2),
    TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), norm=None, smooth_idf=False, max_features=30),
    TfidfVectorizer(token_pattern=r"[^\W_]{2,}", lowercase=False, strip_accents="unicode", stop_words=["red"]),
    CountVectorizer(binary=True),
    CountVectorizer(vocabulary=["fish", "red"], strip_accents="ascii"),
    HashingVectorizer(n_features=64),
    HashingVectorizer(n_features=32, alternate_sign=False, norm=None, analyzer="char"),
]


@pytest.mark.parametrize("vectoriser", VECTORISERS, ids=lambda v: str(v)[:60])
def test_features_are_those_of_scikit_learn_also_after_storing(vectoriser):
    theirs = vectoriser.fit_transform(TEXTS).toarray()
    ours, X = SklearnFeatures.fit(vectoriser, TEXTS)
    np.testing.assert_allclose(X.toarray(), theirs, atol=1e-6)
    assert X.dtype == np.float32 and X.shape == (len(TEXTS), ours.n_features)
    stored = json.loads(json.dumps(ours.config()))
    again = SklearnFeatures(**stored, words=ours.words, idf=ours.idf)
    assert np.array_equal(again.transform(TEXTS).toarray(), X.toarray())
    assert again.transform([]).shape == (0, ours.n_features)
    assert type(again.unfitted()) is type(vectoriser)


@pytest.mark.parametrize(
    ("vectoriser", "message"),
    [
        (TfidfVectorizer(tokenizer=str.split), "TfidfVectorizer: tokenizer is a function"),
        (CountVectorizer(preprocessor=str.lower), "CountVectorizer: preprocessor is a function"),
        (CountVectorizer(analyzer=str.split), "its analyzer, <method 'split' of 'str' objects>, cannot be stored"),
        (CountVectorizer(strip_accents=str.lower), "its strip_accents, "),
        (CountVectorizer(input="filename"), "input must be 'content'"),
        (TfidfVectorizer(token_pattern=r"(\w+\w+)+x"), r"its token_pattern, '(\\w+\\w+)+x', cannot be stored safely"),
        (TfidfVectorizer(token_pattern=r"\\(\w+)+$"), "its token_pattern, "),
        (TfidfVectorizer(token_pattern=r"a*a*a*b"), "its token_pattern, "),
        (TfidfVectorizer(token_pattern="[a"), "its token_pattern, "),
        (TfidfVectorizer(token_pattern=None), "its token_pattern, None, cannot be stored safely"),
        (type("Mine", (CountVectorizer,), {})(), "a model can store TfidfVectorizer, CountVectorizer, "),
        (object(), "got object: transform the texts yourself, and fit on the matrix"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_one_line(vectoriser, message):
    with pytest.raises(OptionError, match=re.escape(message)) as refused:
        SklearnFeatures.fit(vectoriser, TEXTS)
    assert "\n" not in str(refused.value)


def test_texts_without_words_are_refused():
    with pytest.raises(DataError, match="CountVectorizer: empty vocabulary"):
        SklearnFeatures.fit(CountVectorizer(), ["", "a"])


def test_hostile_settings_of_a_file_are_refused():
    ours, _ = SklearnFeatures.fit(TfidfVectorizer(), TEXTS)
    good = ours.config()
    for name, value in {
        "token_pattern": "(a+)+b",
        "ngram_range": [1, 10**9],
        "analyzer": "filename",
        "binary": "yes",
        "stop_words": "klingon",
        "norm": "max",
    }.items():
        with pytest.raises(OptionError, match=f"its {name}, "):
            SklearnFeatures(good["kind"], {**good["settings"], name: value}, ours.words, ours.idf)
    with pytest.raises(OptionError, match="no vectoriser that can be stored"):
        SklearnFeatures("CountVectorizer", good["settings"], ours.words)
    with pytest.raises(DataError, match="does not fit its idf"):
        SklearnFeatures(good["kind"], good["settings"], ours.words[1:], ours.idf)
    with pytest.raises(DataError, match="idf values if, and only if"):
        SklearnFeatures(good["kind"], good["settings"], ours.words)
    with pytest.raises(DataError, match="each word once"):
        SklearnFeatures(good["kind"], good["settings"], ["a"] * len(ours.words), ours.idf)
