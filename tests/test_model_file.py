"""Models in files: a loaded model is the saved one; hostile and damaged files are refused."""

import random
import struct
import zlib

import numpy as np
import pytest
import torch
from helpers.hostile import bomb, hostile, replacing, setting, without
from helpers.models import HEADS, NETWORKS, SEEN, TEXTS, F, L, N, X, build, text_model
from safetensors import safe_open
from safetensors.torch import save_file

import holobind as hb
from holobind import _storage as storage
from holobind.model import Model
from holobind.networks import FC, Network


def same(one, other):
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    assert np.array_equal(one.scores(X), other.scores(X))


# Saved and loaded


@pytest.mark.parametrize("options", HEADS, ids=str)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_loaded_model_is_the_saved_one(tmp_path, network, options):
    model = build(
        network, options, normalise=network == "linear_skip", metadata={"data": "toy", "metrics": {"P@1": 50.0}}
    )
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m")
    same(model, found)
    assert found.network.config() == model.network.config()
    assert found.normalise == model.normalise and found.metadata == model.metadata
    assert found.frequencies.n_rows == N and np.array_equal(found.frequencies.counts, SEEN.counts)
    assert found.label_names is None and found.tfidf is None and not found.training
    learned = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in found.named_parameters() if p.requires_grad} == learned
    labels, offsets = torch.tensor([1, 2, 3]), torch.tensor([0, 2])
    rows = model.examples(X[:2]).batch(np.arange(2))
    assert torch.equal(model(rows, labels, offsets), found(rows, labels, offsets))


def test_the_label_order_is_restored(tmp_path):
    model = build(label_order=np.random.default_rng(1).permutation(L))
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m")
    same(model, found)
    assert np.array_equal(found.label_order, model.label_order)


def test_a_head_without_bias_is_loaded_without(tmp_path):
    for options in (HEADS[0], HEADS[-1]):
        model = build("fc", options, bias=False)
        model.save(tmp_path / "m")
        same(model, hb.load(tmp_path / "m"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_matrices_are_stored_in_the_given_precision(tmp_path, dtype):
    model = build("fc")
    model.save(tmp_path / "m", dtype=dtype)
    with safe_open(tmp_path / "m", "pt") as file:
        assert file.get_tensor("network.first.weight").dtype == dtype
        assert file.get_tensor("network.first_bias").dtype == torch.float32
    found = hb.load(tmp_path / "m")
    for name, tensor in model.state_dict().items():
        wanted = tensor.to(dtype).float() if tensor.ndim > 1 else tensor
        assert torch.equal(found.state_dict()[name], wanted)
    found.save(tmp_path / "again", dtype=dtype)
    same(found, hb.load(tmp_path / "again"))


def test_a_query_head_with_few_labels_is_restored(tmp_path):
    model = Model(FC(F, (6,)), hb.HolographicHead(6, L, 24, loss="query"), SEEN)
    assert model.head.weight.shape == (2 * L, 6)
    assert model.sizes()["linear output layer"] == 7 * L
    model.save(tmp_path / "m")
    same(model, hb.load(tmp_path / "m"))
    with pytest.raises(hb.FileError, match="its head is of size 10000, which does not fit its weights"):
        hb.load(hostile(tmp_path / "m", model, setting("head", "dim", to=10_000)))


def test_models_that_cannot_be_stored_are_refused(tmp_path):
    model = build()
    with torch.no_grad():
        model.network.first.weight[0, 0] = 1e6
    with pytest.raises(
        hb.DataError, match=r"network.first.weight .* in torch.float16: they do not fit, take torch.float32"
    ):
        model.save(tmp_path / "m", dtype=torch.float16)
    with torch.no_grad():
        model.network.first.weight[0, 0] = torch.nan
    with pytest.raises(hb.DataError, match="training has failed"):
        model.save(tmp_path / "m")
    with pytest.raises(hb.OptionError, match=r"dtype must be .* float16 or bfloat16; got torch"):
        build().save(tmp_path / "m", dtype=torch.int8)
    for names, message in (
        (["a\nb"] + ["c"] * (L - 1), "line break"),
        ([1] * L, "not a string|no text|not text"),
        (["\ud800"] * L, "surrogate"),
        (["x" * 70_000] * L, "70001 bytes each are too long"),
    ):
        with pytest.raises(hb.DataError, match=message):
            build(label_names=names).save(tmp_path / "m")
    book = hb.RandomCodebook(L, 4, seed=3)
    with pytest.raises(hb.OptionError, match="codebook of your own cannot be saved"):
        Model(FC(F, (), 4), hb.HolographicHead(None, L, 4, book), SEEN).save(tmp_path / "m")

    class Mine(Network):
        pass

    with pytest.raises(hb.OptionError, match="a network of yours, Mine, cannot be saved"):
        Model(Mine(), hb.LinearHead(None, L), SEEN).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_words_and_label_names_are_restored(tmp_path):
    model = text_model()
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m")
    assert found.label_names == model.label_names
    assert found.tfidf.words == model.tfidf.words
    unseen = ["a pear and a fig3", "", "nothing known"]
    assert np.array_equal(found.scores(unseen), model.scores(unseen))
    assert found.top_k([], 3)[1].shape == (0, 3)


@pytest.mark.parametrize("plain", [True, False])
def test_the_kind_of_tfidf_is_restored(tmp_path, plain):
    model = text_model(plain)
    model.save(tmp_path / "m")
    found, long = hb.load(tmp_path / "m").tfidf, [" ".join(TEXTS)]
    assert found.words_only == plain and found.words == model.tfidf.words
    assert np.array_equal(found.transform(long).toarray(), model.tfidf.transform(long).toarray())


# Hostile files


def first(value):
    def change(t):
        t = t.clone()
        t.view(-1)[0] = value
        return t

    return change


REFUSED = {
    "another kind": (setting("kind", to="vocabulary"), "holds 'vocabulary', not a model"),
    "the future": (setting("version", to=3), r"\(format version 3\); this holobind reads version 2: update holobind"),
    "the past": (setting("version", to=1), r"\(format version 1\); this holobind reads version 2: train it again"),
    "no network": (without("network"), "KeyError: 'network'"),
    "no head": (without("head"), "KeyError: 'head'"),
    "no class": (setting("network", to={}), "KeyError: 'class'"),
    "a network that is none": (setting("network", to=[1]), "TypeError"),
    "a strange network": (setting("network", "class", to="os.system"), "network 'os.system'; this holobind knows"),
    "an unhashable network": (setting("network", "class", to=["fc"]), "TypeError"),
    "a strange option": (setting("network", "shell", to="rm"), "unexpected keyword argument 'shell'"),
    "a strange head": (setting("head", "class", to="eval"), "a head 'eval'; this holobind knows holographic and"),
    "a strange loss": (setting("head", "loss", to="hinge"), "loss must be one of"),
    "a strange codebook": (setting("head", "codebook", to="dense"), "codebook must be one of"),
    "a codebook that is a list": (setting("head", "codebook", to=[]), "codebook must be one of"),
    "a strange seed": (setting("head", "seed", to="7"), "seed"),
    "no seed": (setting("head", "seed", to=None), "seed"),
    "a strange learn": (setting("head", "trainable", to=["all"]), "trainable must be one of"),
    "no learn": (setting("head", "trainable", to=None), "TypeError"),
    "trained labels that are missing": (setting("head", "trainable", to=["labels"]), "lacks its label vectors, 3 of 4"),
    "naive labels that are not there": (setting("head", "codebook", to="naive"), "lacks its label vectors, 9 of 4"),
    "huge features": (setting("network", "n_features", to=10**12), "shape"),
    "beyond 64 bits": (setting("network", "n_features", to=10**30), "is not a model as holobind writes them"),
    "no features": (setting("network", "n_features", to=-1), "positive sizes"),
    "features of text": (setting("network", "n_features", to="11"), "TypeError"),
    "half a feature": (setting("network", "n_features", to=11.5), "TypeError"),
    "huge outputs": (setting("network", "out_features", to=10**12), "shape"),
    "a huge dim": (setting("head", "dim", to=10**12), "its head is of size 1000000000000, which does not fit"),
    "a dim of text": (setting("head", "dim", to="4"), "does not fit its weights"),
    "many layers": (setting("network", "hidden", to=[1] * 10**6), "more layers than it has weights"),
    "a strange dropout": (setting("network", "dropout", to=2), "fraction from 0 to below 1"),
    "strange features": (setting("normalise", to="yes"), "other types than it should"),
    "strange notes": (setting("metadata", to=[]), "other types than it should"),
    "a weight missing": (without("network.first.weight"), "its network lacks 'first.weight'"),
    "a weight too many": (replacing("network.second", torch.ones(2)), "its network has a strange 'second'"),
    "something else": (replacing("virus", torch.ones(2)), "it holds 'virus', which no model has"),
    "a wrong shape": (replacing("network.first.weight", lambda t: t[1:]), r"has shape \(10, 4\); the header implies"),
    "a turned weight": (replacing("network.first.weight", lambda t: t.T), r"has shape \(4, 11\); the header implies"),
    "whole numbers": (replacing("network.first.weight", lambda t: t.int()), "something else than finite numbers"),
    "complex numbers": (replacing("network.first_bias", lambda t: t.to(torch.complex64)), "something else than finite"),
    "NaN": (replacing("network.first.weight", first(torch.nan)), "network.first.weight holds something else"),
    "an odd prior": (replacing("head.prior", torch.zeros(8)), r"head.prior has shape \(8,\); the header implies"),
    "a prior of nothing": (replacing("head.prior", torch.full((9,), torch.nan)), "head.prior holds something else"),
    "infinity": (replacing("head.log_temperature", first(torch.inf)), "head.log_temperature holds something else"),
    "no counts": (without("label_counts"), "KeyError: 'label_counts'"),
    "counts of nothing": (replacing("label_counts", lambda t: t[:0]), "its label_counts has torch.int32 of shape"),
    "counts of floats": (replacing("label_counts", lambda t: t.float()), "its label_counts has torch.float32"),
    "negative counts": (replacing("label_counts", first(-1)), "cannot be those of any data"),
    "more counts than points": (replacing("label_counts", first(N + 1)), "cannot be those of any data"),
    "two points": (replacing("n_rows", torch.tensor([N, N])), "cannot be those of any data"),
    "points without number": (replacing("n_rows", torch.tensor(N)), "its n_rows has torch.int64 of shape"),
    "an order with a label twice": (replacing("label_order", torch.zeros(9).int()), "does not have every label once"),
    "an order of other labels": (replacing("label_order", torch.arange(1, 10).int()), "does not have every label once"),
    "an order that is too short": (replacing("label_order", torch.arange(8).int()), "does not have every label once"),
    "an order of floats": (replacing("label_order", torch.arange(9.0)), "its label_order has torch.float32"),
    "names that do not fit": (replacing("label_names", bomb(3)), "its label_names are damaged, or not 9, or too long"),
    "names that are damaged": (replacing("label_names", lambda t: t[:-4]), "its label_names are damaged"),
    "names and more": (replacing("label_names", lambda t: torch.cat([t, t])), "its label_names are damaged"),
    "names not of bytes": (replacing("label_names", torch.ones(3)), "its label_names has torch.float32"),
    "names that are not compressed": (replacing("label_names", torch.arange(9).byte()), "its label_names are damaged"),
    "names like a bomb": (replacing("label_names", bomb(10**8)), "its label_names are damaged, or not 9, or too long"),
    "weights without words": (replacing("idf", torch.ones(4)), "it holds 'idf', which no model has"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_in_one_line(tmp_path, name):
    change, message = REFUSED[name]
    path = hostile(tmp_path / "m", build(label_names=[f"label {i}" for i in range(L)]), change)
    with pytest.raises(hb.FileError, match=message) as caught:
        hb.load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("idf"), "KeyError: 'idf'"),
        (replacing("idf", lambda t: t[1:]), "its words are damaged, or not"),
        (replacing("idf", first(torch.nan)), "its idf holds something else than finite numbers"),
        (replacing("words", bomb(10)), "its words are damaged"),
        (setting("network", "n_features", to=3), "words for a network of 3 features"),
        (
            replacing("words", lambda t: storage.pack_lines(["a"] * len(text_model().tfidf.words))),
            "tf-idf needs distinct words",
        ),
    ],
)
def test_hostile_words_are_refused(tmp_path, change, message):
    with pytest.raises(hb.FileError, match=message):
        hb.load(hostile(tmp_path / "m", text_model(), change))


@pytest.mark.parametrize(("codebook", "trainable"), [("random", ["labels"]), ("naive", [])])
def test_label_vectors_that_the_file_lacks_are_not_drawn(tmp_path, codebook, trainable):
    """A million labels of a million dimensions would be 4 TB; the counts and weights that claim them are 8 MB."""

    def claim(header, tensors):
        tensors["label_counts"] = torch.zeros(10**6, dtype=torch.int32)
        tensors["network.first.weight"], tensors["network.first_bias"] = torch.zeros(1, 10**6), torch.zeros(10**6)
        header["network"] |= {"n_features": 1, "out_features": 10**6}
        header["head"] |= {"dim": 10**6, "codebook": codebook, "trainable": trainable}

    with pytest.raises(hb.FileError, match="lacks its label vectors, 1000000 of 1000000"):
        hb.load(hostile(tmp_path / "m", build(), claim))


def test_decompression_stops_at_the_limit_for_names(tmp_path, monkeypatch):
    limits = []
    unpack = zlib.decompressobj

    class Watched:
        def __init__(self):
            self.inner = unpack()

        def decompress(self, data, max_length):
            limits.append(max_length)
            return self.inner.decompress(data, max_length)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    path = hostile(tmp_path / "m", build(), replacing("label_names", bomb(10**8)))
    monkeypatch.setattr(zlib, "decompressobj", Watched)
    with pytest.raises(hb.FileError, match="too long"):
        hb.load(path)
    assert limits and max(limits) < 10**5


def test_other_files_and_missing_ones_are_refused(tmp_path):
    vocabulary = hb.Vocabulary(16)
    vocabulary.parse("red*cat")
    vocabulary.save(tmp_path / "v")
    with pytest.raises(hb.FileError, match="holds 'vocabulary', not a model"):
        hb.load(tmp_path / "v")
    save_file({"weight": torch.ones(2)}, tmp_path / "s")
    with pytest.raises(hb.FileError, match="not one of holobind's"):
        hb.load(tmp_path / "s")
    (tmp_path / "t").write_text("a text")
    with pytest.raises(hb.FileError, match="not a safetensors file"):
        hb.load(tmp_path / "t")
    with pytest.raises(hb.FileError, match="is not a file"):
        hb.load(tmp_path / "none")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A small model file, its bytes, the position of its tensors, and the model."""
    path = tmp_path_factory.mktemp("model") / "m"
    model = text_model()
    model.save(path)
    whole = path.read_bytes()
    return path, whole, 8 + struct.unpack("<Q", whole[:8])[0], model


def test_a_file_cut_anywhere_is_refused(stored):
    path, whole, start, _ = stored
    places = {0, 1, 7, 8, 9, start - 1, start, start + 1, len(whole) - 1, *range(0, len(whole), 97)}
    for length in sorted(places):
        path.write_bytes(whole[:length])
        with pytest.raises(hb.FileError):
            hb.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(hb.FileError):
        hb.load(path)


def test_a_file_with_changed_bytes_is_read_or_refused_but_never_crashes(stored, monkeypatch):
    """As of a hostile file, whose checksum is right: what is read can be used and saved, anything else is refused."""
    monkeypatch.setattr(storage, "checksum", lambda tensors: 0)
    path, _, _, model = stored
    model.save(path)
    whole = path.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    draw, read = random.Random(0), 0
    for turn in range(300):
        changed = bytearray(whole)
        low, high = (0, start) if turn % 2 else (start, len(whole))
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(low, high)] = draw.randrange(256)
        path.write_bytes(changed)
        try:
            found = hb.load(path)
        except hb.FileError as error:
            assert "\n" not in str(error)
            continue
        read += 1
        assert np.isfinite(found.scores(["pear fig1", ""])).all()
        assert found.n_labels == model.n_labels == len(found.label_names)
        found.save(path)
    assert 15 < read < 275
