"""Sentence encoders: embeddings against one text at a time by transformers; what is no encoder is refused."""

import json
import sys

import numpy as np
import pytest
import torch
from helpers.encoders import DIM, write_encoder

from holobind.data import sentence_encoder as module
from holobind.data.sentence_encoder import SentenceEncoder
from holobind.errors import FileError, OptionError

TEXTS = ["Red apples", "", "green pear of an old tree", "red apples", "fish " * 60, "  ", "car", "Red apples"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "small")


def embedding_by_definition(folder, text, pooling):
    """One text through transformers' own tokenizer and network, with all of its tokens in one row."""
    import transformers

    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(text)["input_ids"]
    network = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = network(torch.tensor([tokens])).last_hidden_state[0]
    pooled = (hidden.mean(0) if pooling == "mean" else hidden[0]).numpy()
    return pooled / np.linalg.norm(pooled)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_are_those_of_transformers(tmp_path, pooling):
    folder = write_encoder(tmp_path / "small", pooling=pooling)
    found = SentenceEncoder.open(folder).embed(TEXTS)
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), DIM)
    for text, row in zip(TEXTS, found, strict=True):
        expected = embedding_by_definition(folder, text, pooling) if text.strip() else np.zeros(DIM)
        np.testing.assert_allclose(row, expected, atol=2e-3)  # float16


def test_the_size_of_batches_does_not_matter(folder, monkeypatch):
    encoder = SentenceEncoder.open(folder)
    whole = encoder.embed(TEXTS)
    monkeypatch.setattr(module, "BATCH_TOKENS", 1)
    np.testing.assert_allclose(encoder.embed(TEXTS), whole, atol=2e-3)


def test_long_texts_are_cut(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_TOKENS", 6)
    monkeypatch.setattr(module, "TEXT_PREFIX_CHARACTERS", 60)
    found = SentenceEncoder.open(folder).embed(["red fish car tree", "red fish car tree " + "apple " * 500])
    assert np.array_equal(found[0], found[1])


def test_embeddings_are_computed_once_and_progress_is_reported(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path))
    encoder, progress = SentenceEncoder.open(folder), []
    first = encoder.embed(TEXTS, cache=True, on_progress=lambda what, done: progress.append((what, done)))
    assert progress[-1] == (f"embedding texts with {folder}", 1.0)
    monkeypatch.setattr(SentenceEncoder, "_load", lambda self: pytest.fail("the cache was not used"))
    again = SentenceEncoder.open(folder)
    assert np.array_equal(again.embed(TEXTS, cache=True), first)
    assert np.array_equal(again.embed(TEXTS[::-1], cache=True), first[::-1])
    with pytest.raises(pytest.fail.Exception):
        again.embed(["a new text"], cache=True)
    with pytest.raises(pytest.fail.Exception):
        again.embed(TEXTS)


def test_the_digest_depends_on_weights_tokenizer_and_pooling(folder, tmp_path):
    digest = SentenceEncoder.open(folder).digest
    assert digest == SentenceEncoder.open(write_encoder(tmp_path / "same")).digest
    others = {
        SentenceEncoder.open(write_encoder(tmp_path / "weights", seed=1)).digest,
        SentenceEncoder.open(write_encoder(tmp_path / "pooling", pooling="cls")).digest,
        SentenceEncoder.open(write_encoder(tmp_path / "words", words=["x", *"abcdefghi"])).digest,
    }
    assert len(others | {digest}) == 4


def test_an_installed_package_is_an_encoder(folder, tmp_path, monkeypatch):
    package = tmp_path / "my_small_encoder"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (package / "model").symlink_to(folder)
    monkeypatch.syspath_prepend(tmp_path)
    assert SentenceEncoder.open("my-small-encoder").digest == SentenceEncoder.open(folder).digest


def test_a_pickle_is_not_loaded(folder, tmp_path):
    bad = write_encoder(tmp_path / "bad")
    (bad / "model.safetensors").rename(bad / "pytorch_model.bin")
    with pytest.raises(OptionError, match=r"the encoder .* has no model\.safetensors"):
        SentenceEncoder.open(bad)
    (bad / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(FileError, match="cannot be loaded"):
        SentenceEncoder.open(bad).embed(["red"])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", r"config\.json cannot be read as JSON"),
        ("config.json", "[]", r"config\.json is not a JSON object"),
        ("config.json", '{"hidden_size": "many"}', r"no number of dimensions \(hidden_size\)"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_max_tokens": true}',
            "pools by pooling_mode_max_tokens; mean and cls",
        ),
    ],
)
def test_damaged_settings_are_refused(tmp_path, file, content, message):
    bad = write_encoder(tmp_path / "bad")
    (bad / file).write_text(content)
    with pytest.raises((OptionError, FileError), match=message):
        SentenceEncoder.open(bad)


def test_weights_that_do_not_fit_the_settings_are_refused(tmp_path):
    bad = write_encoder(tmp_path / "bad")
    settings = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps({**settings, "hidden_size": 14}))
    with pytest.raises(FileError, match=r"the encoder .* cannot be loaded"):
        SentenceEncoder.open(bad).embed(["red"])


@pytest.mark.parametrize("name", ["no-such-encoder", "../nothing", "", "a b", "json", "os.path", "x" * 5000, "a\0b"])
def test_an_unknown_name_is_refused_in_one_line(name):
    with pytest.raises(OptionError, match="there is no encoder") as refused:
        SentenceEncoder.open(name)
    assert "\n" not in str(refused.value)


def test_a_name_of_the_hub_that_is_not_here_is_not_fetched():
    pytest.importorskip("transformers")
    with pytest.raises(OptionError, match="the encoder nobody/nothing is no folder here"):
        SentenceEncoder.open("nobody/nothing", fetch=False)


def test_without_transformers_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(OptionError, match=r"pip install 'holobind\[encoder\]'"):
        SentenceEncoder.open(folder).embed(["red"])
