"""Loaders that benchmarks/campaign.py attacks: what reads a file, and a small valid file for each.

A loader returns, or raises a HolobindError; anything else is a failure. Nothing heavy is imported before it is needed.
"""

import contextlib
import functools
import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

NETWORKS = {"hidden": (4,), "dim": 6, "epochs": 1, "embedding_dim": 4, "filters": 2, "hidden_size": 3}
ENCODER_FILES = ("config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json")
ENCODER_DIM = 8
EMBEDDED = ("read the file", "join b")
SKOS, RDF = "http://www.w3.org/2004/02/skos/core#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
LABEL_TEXTS = {
    "names.ttl": f'''@prefix skos: <{SKOS}> .
<http://e/a> a skos:Concept ; skos:prefLabel "cat"@en, "chat"@fr ; skos:altLabel """a \\"b\\" """ .
<http://e/b> skos:prefLabel "dog"@en ; skos:note [ skos:x "y" ] .
''',
    "names.rdf": f'''<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="{RDF}" xmlns:skos="{SKOS}"><skos:Concept rdf:about="http://e/a">
<skos:prefLabel xml:lang="en">cat</skos:prefLabel><skos:altLabel>kitty</skos:altLabel></skos:Concept></rdf:RDF>
''',
    "names.json": '{"a": "cat", "b": ["dog", "hound"], "c": {"name": "x", "synonyms": ["y"]}}',
    "names.jsonl": '{"label": "a", "name": "cat", "synonyms": ["kitty"]}\n{"label": "b", "name": "dog"}\n',
    "names.tsv": "uri\tlabel_en\taltLabel\n<http://e/a>\tcat\tkitty|tom\n<http://e/b>\tdog\t\n",
}


# Examples


def accept_any_content() -> None:
    """As of hostile files, whose checksums are right, in this process: else mutations would reach nothing else."""
    from holobind import _storage

    _storage.checksum = lambda tensors: 0


def make_examples(folder: Path) -> None:
    """A valid file for every loader; small, so that mutations reach everything."""
    import numpy as np

    import holobind as hb
    from holobind.training import loop

    texts = [f"{word} number{i} of the {other}" for i in range(12) for word in ("read", "join") for other in "ab"]
    labels = [[f"l{i % 5}", f"l{i % 3}"] for i in range(len(texts))]
    _write_tables(folder, texts, labels)
    dataset = hb.data.load(folder / "data.jsonl", cache=False)
    hb.data.write(dataset, folder / "data.txt")
    hb.data.write(dataset, folder / "data.svm")
    hb.data.write(dataset, folder / "npz", to="npz")
    hb.data.write(dataset, folder / "data.txt.bz2")
    hb.data.write(dataset, folder / "data.txt.xz")
    for suffix in ("zip", "tar.gz"):
        _pack(folder / "data.txt", folder / f"archive.{suffix}")
    shutil.copy(folder / "npz" / "X.trn.npz", folder / "X.npz")
    for name, content in LABEL_TEXTS.items():
        (folder / name).write_text(content, encoding="utf-8")
    requests = ('{"text": "read b"}', '{"features": {"1": 0.5, "3": 2}}', "1:0.5 3:2", "join number1")
    (folder / "lines.jsonl").write_text("\n".join(requests), encoding="utf-8")
    shutil.copy(folder / "data.txt", folder / "cached.txt")
    _cache_of(folder / "cached.txt", folder / "data.cache")
    (folder / "words.vec").write_text("2 3\nread 1 2 3\njoin 4 5 6\n", encoding="utf-8")
    _write_encoder(folder / "encoder", [*"abc", "read", "join", "file", "the"])
    _write_embeddings(folder / "embeddings.sqlite")
    _write_models(folder, dataset)
    vocabulary = hb.Vocabulary(16)
    vocabulary.parse("red*cat + blue*dog")
    vocabulary.save(folder / "names.vocabulary")
    hb.LargeVocabulary([f"n{i}" for i in range(40)], 16).save(folder / "large.vocabulary")
    fc = hb.load(folder / "fc.model")
    examples = fc.examples(dataset.train.texts)
    loop.fit(fc, examples, dataset.train.Y, hb.TrainConfig(epochs=1), checkpoint=folder / "fc.checkpoint")
    assert np.isfinite(fc.scores(["read"])).all()


def _write_tables(folder: Path, texts: list[str], labels: list[list[str]]) -> None:
    """Texts and labels in every format of tables."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.ipc
    import pyarrow.parquet as pq

    rows = list(zip(texts, labels, strict=True))
    uris = [" ".join(f"<http://example.org/{name}>" for name in names) for names in labels]
    names = sorted({name for names in labels for name in names})
    files = {
        "data.jsonl": [json.dumps({"text": text, "labels": names}) for text, names in rows],
        "data.tsv": ["\t".join([text, *names]) for text, names in rows],
        "data.csv": ["title,body,tags", *(f'"{text}","the ""body""\nof {text}",{"|".join(n)}' for text, n in rows)],
        "data.ft": [" ".join([*(f"__label__{name}" for name in names), text]) for text, names in rows],
        "annif.tsv": [f"{text}\t{uri}" for text, uri in zip(texts, uris, strict=True)],
        "train_texts.txt": texts,
        "train_labels.txt": [" ".join(names) for names in labels],
        "vocabulary.csv": ["uri,label_en", *(f"<http://example.org/{name}>,name of {name}" for name in names)],
        "vocabulary.tsv": [f"<http://example.org/{name}>\tname of {name}" for name in names],
        "subjects.tsv": [f"<http://example.org/{name}>\tname of {name}" for name in labels[1]],
        "state.json": ['{"_data_files": [{"filename": "data.arrow"}], "_split": "train"}'],
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    table = pa.table({"text": texts, "labels": labels, "n": list(range(len(texts)))})
    pq.write_table(table, folder / "data.parquet")
    encodings = {
        "text": "DELTA_BYTE_ARRAY",
        "labels.list.element": "DELTA_LENGTH_BYTE_ARRAY",
        "n": "DELTA_BINARY_PACKED",
    }
    options = {"data_page_version": "2.0", "use_dictionary": False, "compression": "none", "row_group_size": 30}
    pq.write_table(table, folder / "delta.parquet", column_encoding=encodings, **options)
    with pa.ipc.new_file(folder / "data.arrow", table.schema) as file:
        file.write_table(table)
    with pa.ipc.new_file(
        folder / "packed.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    ) as file:
        file.write_table(table)
    with pa.ipc.new_stream(folder / "stream.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=20)


def _write_encoder(folder: Path, words: list[str]) -> None:
    """A sentence encoder with random weights, in the files of sentence-transformers."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    transformers.utils.logging.disable_progress_bar()  # it has a thread
    folder.mkdir()
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"hidden_size": ENCODER_DIM, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": ENCODER_DIM, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name in ENCODER_FILES:
        shutil.copy(folder / name, folder.parent / _flat(name))


def _flat(name: str) -> str:
    """The name of the example of a file of an encoder."""
    return f"encoder.{name.replace('/', '.')}"


def _write_embeddings(target: Path) -> None:
    """A cache of embeddings."""
    import numpy as np

    from holobind.data import embedding_cache

    with embedding_cache.EmbeddingCache.of("examples", ENCODER_DIM) as store:
        store.put(EMBEDDED, np.eye(2, ENCODER_DIM, dtype=np.float16))
    shutil.copy(_embeddings_path("examples"), target)


def _embeddings_path(digest: str) -> Path:
    from holobind.data import cache

    return cache.cache_dir() / "embeddings" / f"{digest}.sqlite"


def _write_models(folder: Path, dataset: Any) -> None:
    """A model of each kind: networks, heads, and the features of texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    import holobind as hb
    from holobind.data.csr import widen
    from holobind.data.vectorizers import SklearnFeatures
    from holobind.training.config import split_options

    def network(*names: str) -> dict[str, Any]:
        return {name: NETWORKS[name] for name in ("dim", "epochs", "hidden", *names)}

    for name, options in {
        "ridge_knn": {},
        "ridge": {"knn_weight": 0},
        "trees": {"label_trees": 2, "dim": 4},
        "fc": {"network": "fc", **network()},
        "cnn": {"network": "cnn", "tokenizer": "bpe", "vocab_size": 300, **network("embedding_dim", "filters")},
        "lstm": {"network": "lstm", **network("embedding_dim", "hidden_size")},
        "linear": {"head": "linear"},
        "encoder": {"encoder": str(folder / "encoder"), "encoder_weight": 0.5},
    }.items():
        model = hb.learn(dataset.train, *split_options(options), label_names=dataset.label_names, tfidf=dataset.tfidf)
        model.save(folder / f"{name}.model")
    features, X = SklearnFeatures.fit(TfidfVectorizer(ngram_range=(1, 2), min_df=2), dataset.train.texts)
    hb.learn(replace(dataset.train, X=X), label_names=dataset.label_names, tfidf=features).save(
        folder / "sklearn.model"
    )
    hb.learn(hb.data.synthetic("delicious", scale=0.2).train).save(folder / "forest.model")
    names = [*dataset.label_names, "read number1", "join b"]  # the last two have a text and no row
    with_texts = replace(dataset.train, Y=widen(dataset.train.Y, len(names)))
    hb.learn(with_texts, label_names=names, tfidf=dataset.tfidf, label_texts=[[name] for name in names]).save(
        folder / "label_text.model"
    )
    kinds = {"label_text": "label_text"}
    kinds |= {"calibration": "ridge_knn", "label_trees": "trees", "vectorizer": "sklearn", "encoder": "encoder"}
    for part, name in kinds.items():
        if part.encode() not in (folder / f"{name}.model").read_bytes()[: 1 << 16]:
            raise RuntimeError(f"the example {name}.model has no {part}")


def _pack(file: Path, archive: Path) -> None:
    """An archive of one file; the same bytes every time."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(zipfile.ZipInfo("train.txt"), file.read_bytes())
        return
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as packed:
        member = tarfile.TarInfo("train.txt")
        member.size = file.stat().st_size
        packed.addfile(member, io.BytesIO(file.read_bytes()))
    archive.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def _cache_of(source: Path, target: Path) -> None:
    """The cache file of a text, which is too small to get one otherwise."""
    from holobind.data import cache, sparse_text

    before, sparse_text.MIN_BYTES_TO_CACHE = sparse_text.MIN_BYTES_TO_CACHE, 0
    try:
        sparse_text.read(source)
    finally:
        sparse_text.MIN_BYTES_TO_CACHE = before
    shutil.move(cache.cache_path(source, one_based=False), target)


# Loaders


def _read_model(path: Path) -> None:
    """Load a model and use all of it: what passes the checks must be safe to predict with."""
    import numpy as np

    import holobind as hb
    from holobind.cli.describe import description, table

    model = hb.load(path)
    inputs: Any = ["read number1", "", "join b"]
    if not model.reads_texts:
        inputs = np.eye(3, model.network.n_features or 1, dtype=np.float32)
    model.rank(inputs, min(3, model.n_labels))
    if model.calibration is not None and model.n_labels < 1000:
        model.choose(inputs)
    table({"path": str(path), **description(model), "bytes": 1})


def _read_checkpoint(path: Path) -> None:
    import holobind as hb
    from holobind.training import loop

    model, split = hb.load(path.parent / "fc.model"), _training_split(path.parent)
    examples = model.examples(split.texts)
    loop.fit(model, examples, split.Y, hb.TrainConfig(epochs=1), checkpoint=path, resume=True)


@functools.cache
def _training_split(folder: Path) -> Any:
    import holobind as hb

    return hb.data.load(folder / "data.jsonl", cache=False).train


def _read_vocabulary(path: Path) -> None:
    import holobind as hb

    vocabulary = hb.Vocabulary.load(path)
    if len(vocabulary):
        vocabulary.clean_up(vocabulary[next(iter(vocabulary))], 2)


def _read_data(path: Path) -> None:
    import holobind as hb

    hb.data.statistics(hb.data.load(path, cache=False))


def _read_cached_data(path: Path) -> None:
    """The text is valid; its cache is the file that was changed. Whatever that holds, the data is right or refused."""
    from holobind.data import cache, sparse_text

    source = path.parent / "cached.txt"
    cached = cache.cache_path(source, one_based=False)
    cached.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, cached)
    for memory_map in (False, True):
        max_ids = sparse_text._max_ids(source, None)
        found = sparse_text._read_cached(cached, cache.fingerprint(source), memory_map, max_ids)
        if found is not None:
            found[0].X @ found[0].X.T
            found[0].Y @ found[0].Y.T


def _unpack(path: Path) -> None:
    from holobind.data.archives import unpack

    target = path.with_name(f"{path.name}-unpacked")
    try:
        unpack(path, target)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _read_matrix(path: Path) -> None:
    from holobind.data.npz import read_npz

    X = read_npz(path)
    assert (X.indices < X.shape[1]).all() and (X @ X.T).shape == (X.shape[0], X.shape[0])


def _read_labels(path: Path) -> None:
    """A pair of files, of which the labels were changed."""
    import holobind as hb

    texts = path.with_name(path.name.replace("labels", "texts"))
    shutil.copy(path.parent / "train_texts.txt", texts)
    try:
        hb.data.statistics(hb.data.load(texts, cache=False))
    finally:
        texts.unlink()


def _predict_lines(path: Path) -> None:
    """Lines for `predict`, of every kind, by a model of texts and a model of features."""
    from holobind.cli import stream
    from holobind.errors import HolobindError

    for name in ("fc.model", "forest.model"):
        model = _model(path.parent / name)
        for on_error in (None, lambda error: None):
            with contextlib.suppress(*(() if on_error else (HolobindError,))):
                for batch in stream.predictions(model, stream.read_chunks(path), 2, source="lines", on_error=on_error):
                    json.dumps(batch)


@functools.cache
def _model(path: Path) -> Any:
    import holobind as hb

    return hb.load(path)


def _read_word_vectors(path: Path) -> None:
    from holobind.data.tokenizer import load_word_vectors

    load_word_vectors(path, _tokenizer())


@functools.cache
def _tokenizer() -> Any:
    from holobind.data.tokenizer import Tokenizer

    return Tokenizer.train(["read the file", "join the read"], min_count=1)


def _read_named_labels(path: Path) -> None:
    """The names of labels, of a valid table of Annif."""
    import holobind as hb

    hb.data.load(path.parent / "annif.tsv", label_names=path, cache=False)


def _read_label_texts(path: Path) -> None:
    from holobind.data.label_texts import read_label_texts

    for language in (None, "en"):
        read_label_texts(path, language)


@contextlib.contextmanager
def _folder_of(path: Path, files: dict[str, Path]) -> Iterator[Path]:
    """A folder of files, some of which were changed."""
    folder = path.with_name(f"{path.name}-folder")
    try:
        for name, file in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_subjects(path: Path) -> None:
    """A folder of texts with the subjects of each in a file of its own."""
    with _folder_of(path, {"a.txt": path.parent / "train_texts.txt", "a.tsv": path}) as folder:
        _read_data(folder)


def _read_saved_dataset(path: Path) -> None:
    """A folder of a Hugging Face dataset, with a description that was changed."""
    with _folder_of(path, {"state.json": path, "data.arrow": path.parent / "stream.arrow"}) as folder:
        _read_data(folder)


def _read_encoder(changed: str, path: Path) -> None:
    """A sentence encoder, one of whose files was changed; what can be loaded must embed."""
    import numpy as np

    from holobind.data.sentence_encoder import SentenceEncoder

    files = {name: path.parent / "encoder" / name for name in ENCODER_FILES} | {changed: path}
    with _folder_of(path, files) as folder:
        rows = SentenceEncoder.open(folder).embed([*EMBEDDED, ""])
        assert rows.shape[0] == 3 and not np.isinf(rows).any()


def _read_embeddings(path: Path) -> None:
    """A cache of embeddings that was changed: an embedding is one that was stored, or it is not there."""
    import numpy as np

    from holobind.data.embedding_cache import EmbeddingCache

    digest = path.stem
    shutil.move(path, _embeddings_path(digest))
    try:
        with EmbeddingCache.of(digest, ENCODER_DIM) as store:
            assert all(row.shape == (ENCODER_DIM,) and np.isfinite(row).all() for row in store.get(EMBEDDED).values())
            store.put(EMBEDDED[:1], np.ones((1, ENCODER_DIM), np.float16))
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            _embeddings_path(digest).with_name(f"{digest}.sqlite{suffix}").unlink(missing_ok=True)


MODELS = ("ridge_knn", "ridge", "trees", "sklearn", "encoder", "label_text", "fc", "cnn", "lstm", "linear", "forest")
DATA = (
    *("data.jsonl", "data.tsv", "data.txt", "data.svm", "data.txt.bz2", "data.txt.xz", "data.csv", "data.ft"),
    *("data.parquet", "delta.parquet", "data.arrow", "packed.arrow", "stream.arrow", "annif.tsv"),
)
LOADERS: dict[str, Callable[[Path], None]] = {
    **{f"{name}.model": _read_model for name in MODELS},
    "fc.checkpoint": _read_checkpoint,
    "names.vocabulary": _read_vocabulary,
    "large.vocabulary": _read_vocabulary,
    **dict.fromkeys(DATA, _read_data),
    "vocabulary.csv": _read_named_labels,
    "vocabulary.tsv": _read_named_labels,
    **dict.fromkeys(LABEL_TEXTS, _read_label_texts),
    "subjects.tsv": _read_subjects,
    "state.json": _read_saved_dataset,
    **{_flat(name): functools.partial(_read_encoder, name) for name in ENCODER_FILES},
    "embeddings.sqlite": _read_embeddings,
    "words.vec": _read_word_vectors,
    "data.cache": _read_cached_data,
    "archive.zip": _unpack,
    "archive.tar.gz": _unpack,
    "X.npz": _read_matrix,
    "train_labels.txt": _read_labels,
    "lines.jsonl": _predict_lines,
}
