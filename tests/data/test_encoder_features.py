"""Embeddings beside tf-idf: the weight, the digest that a model insists on, and where the encoder is."""

import pickle

import numpy as np
import pytest
from helpers.encoders import DIM, write_encoder
from scipy import sparse

from holobind.data.encoder_features import EncoderFeatures, beside
from holobind.data.sentence_encoder import SentenceEncoder
from holobind.errors import DataError, FileError, OptionError

TEXTS = ["red apple", "", "old tree"]
X = sparse.csr_array(np.array([[0.6, 0.8], [0, 0], [0, 1]], np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "small")


def test_embeddings_stand_beside_the_features_times_their_weight(folder):
    encoder = SentenceEncoder.open(folder)
    rows = EncoderFeatures.of(encoder, 2.5).append_to(X, TEXTS)
    assert rows.shape == (3, 2 + DIM) and rows.dtype == np.float32 and rows.has_canonical_format
    expected = np.hstack([X.toarray(), 2.5 * encoder.embed(TEXTS)])
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-6)
    assert np.diff(rows.indptr)[1] == 0  # a blank text says nothing
    assert beside(X, encoder.embed(TEXTS), 0) is X


def test_the_config_builds_it_again_and_copies_open_their_own(folder):
    features = EncoderFeatures.of(SentenceEncoder.open(folder), 2)
    rows = features.append_to(X, TEXTS).toarray()
    for again in (EncoderFeatures(**features.config()), pickle.loads(pickle.dumps(features))):
        assert again._encoder is None and again.config() == features.config()
        assert np.array_equal(again.append_to(X, TEXTS).toarray(), rows)


def test_another_encoder_is_refused_and_the_same_one_elsewhere_is_not(folder, tmp_path):
    features = EncoderFeatures.of(SentenceEncoder.open(folder), 2)
    moved = EncoderFeatures(**features.config() | {"name": str(tmp_path / "was here")})
    with pytest.raises(DataError, match=r"this model needs the encoder .{1,80}, which is not here; give its folder"):
        moved.append_to(X, TEXTS)
    other = write_encoder(tmp_path / "was here", seed=1)
    with pytest.raises(FileError, match=f"of hash {features.digest[:12]}; .* has hash"):
        moved.append_to(X, TEXTS)
    with pytest.raises(FileError, match="its embeddings mean something else"):
        moved.use(other)
    moved.use(write_encoder(tmp_path / "elsewhere"))
    assert np.array_equal(moved.append_to(X, TEXTS).toarray(), features.append_to(X, TEXTS).toarray())


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""}, {"name": 3}, {"name": "x" * 10**4}, {"digest": "00"}, {"digest": None}, {"digest": "G" * 32},
        {"dim": 0}, {"dim": 10**9}, {"dim": 3.0}, {"dim": True}, {"weight": 0}, {"weight": -1},
        {"weight": float("nan")}, {"weight": float("inf")}, {"weight": True}, {"weight": "2"},
    ],
)  # fmt: skip
def test_hostile_settings_of_a_file_are_refused(change):
    with pytest.raises(OptionError):
        EncoderFeatures(**{"name": "x", "digest": "0" * 32, "dim": 4, "weight": 2.0, **change})
