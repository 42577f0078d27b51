"""Model, checkpoint and vocabulary files that claim more than they hold, or hold other things than they should."""

import functools
import json
import time
import zlib

import numpy as np
import pytest
import torch
from helpers import label_texts
from helpers.child import run_child
from helpers.commands import run
from helpers.hostile import hostile, opened, replacing, setting
from helpers.models import N, X, Y, build
from helpers.ridge_knn import parity, rare_words
from safetensors.torch import save_file

import holobind as hb
from holobind.data import Split
from holobind.errors import FileError
from holobind.ridge_knn import RidgeKnn, label_tree
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.symbols.vocabulary import Vocabulary
from holobind.training import checkpoint
from holobind.training.loop import optimisers

pytestmark = pytest.mark.usefixtures("one_thread")


def ridge_knn_model():
    return hb.learn(Split(X, Y), hb.ModelConfig(l2=1.0, knn_weight=0.5))


def packed(array):
    """Compressed in pieces, so that zeros shrink to a hundredth of their size, which is allowed, and not to less."""
    data, compressor, out = array.tobytes(), zlib.compressobj(9), b""
    for start in range(0, len(data), 3000):
        out += compressor.compress(data[start : start + 3000]) + compressor.flush(zlib.Z_FULL_FLUSH)
    return torch.frombuffer(bytearray(out + compressor.flush()), dtype=torch.uint8)


def compressing(name, array):
    """Replace a tensor by a compressed one, which the header may describe as it likes."""

    def change(header, tensors):
        tensors[name] = packed(array)
        header["compressed"][name] = [f"torch.{array.dtype}", list(array.shape), "none"]

    return change


def both(*changes):
    def change(header, tensors):
        for each in changes:
            each(header, tensors)

    return change


# Calibration and allowed labels


@functools.cache
def calibrated_model():
    model = ridge_knn_model()
    model.calibrate(X, Y)
    model.restrict(exclude=[2])
    return model


def test_calibration_and_allowed_labels_survive_the_file(tmp_path):
    model = calibrated_model()
    model.save(tmp_path / "m")
    again = hb.load(tmp_path / "m")
    assert again.calibration == model.calibration and np.array_equal(again.allowed, model.allowed)


@pytest.mark.parametrize("value", [None, 3, [], {}, "x", {"score": 1}, 10**400, [[[]]]], ids=lambda v: str(v)[:20])
@pytest.mark.parametrize(
    "where", [(), ("score",), ("score", "knots"), ("contexts",), ("rows",), ("intercept",)], ids=str
)
def test_a_senseless_calibration_is_refused(tmp_path, where, value):
    if where in (("contexts",),) and value == []:
        return  # allowed: no context
    if where in (("rows",), ("intercept",)) and value in (3, 10**400):
        return  # numbers
    path = hostile(tmp_path / "m", calibrated_model(), setting("calibration", *where, to=value))
    with pytest.raises(hb.FileError, match="not a model as holobind writes them"):
        hb.load(path)


@pytest.mark.parametrize("bits", [[0, 0], [255, 255], [255], [255, 128, 0], []], ids=str)
def test_allowed_labels_that_are_not_a_bit_for_each_label_are_refused(tmp_path, bits):
    path = hostile(tmp_path / "m", calibrated_model(), replacing("allowed", torch.tensor(bits, dtype=torch.uint8)))
    with pytest.raises(hb.FileError, match="allowed"):
        hb.load(path)


# Offsets and ids


def offsets_that_wrap(name):
    """Differences of these neighbours are positive in int64, because they wrap."""

    def change(header, tensors):
        header["compressed"].pop(name, None)
        offsets = torch.zeros(N + 1, dtype=torch.int64)
        total = header["network"]["entries" if "row" in name else "labels"]
        offsets[1], offsets[2], offsets[3:] = 2**63 - 1, -2, total
        tensors[name] = offsets

    return change


@pytest.mark.parametrize("name", ["network.row_offsets", "network.label_offsets"])
def test_offsets_whose_differences_wrap_are_refused(tmp_path, name):
    path = hostile(tmp_path / "m", ridge_knn_model(), offsets_that_wrap(name))
    with pytest.raises(FileError, match="offsets must ascend from 0 to"):
        hb.load(path)


# Label trees


@functools.cache
def label_tree_model():
    return hb.learn(Split(*rare_words()), hb.ModelConfig(l2=1.0, dim=16, knn_weight=0.5, label_trees=2))


def changing_tree(name, damage):
    """Change a tensor of the second tree, which is then stored without compression."""

    def change(header, tensors):
        full = f"network.label_trees.1.{name}"
        header["compressed"].pop(full, None)
        tensors[full] = damage(getattr(label_tree_model().network.label_trees[1], name).clone())

    return change


def put(*values, at=0):
    def damage(tensor):
        tensor[at : at + len(values)] = torch.tensor(values, dtype=tensor.dtype)
        return tensor

    return damage


def moved_to_root(tensor):
    """All nodes are children of the root: those below it have no children, and leaves come too early."""
    tensor[1:] = tensor[-1]
    return tensor


TREE_DAMAGE = [
    ("child_offsets", put(2**31 - 1, -(2**31), at=1), "child_offsets must ascend from 0"),
    ("child_offsets", lambda t: t.flip(0), "child_offsets must ascend from 0"),
    ("child_offsets", put(1), "child_offsets must ascend from 0"),
    ("child_offsets", moved_to_root, "leaves must be 3 levels below the root"),
    ("child_offsets", put(0, at=1), "leaves must be 3 levels below the root"),
    ("feature_offsets", put(2**31 - 1, -(2**31), at=1), "feature_offsets must ascend from 0"),
    ("feature_offsets", lambda t: t + 1, "feature_offsets must ascend from 0"),
    ("feature_offsets", put(0, at=1), "features of a node must ascend"),
    ("features", lambda t: t.flip(0), "features of a node must ascend"),
    ("features", put(1, 1), "features of a node must ascend"),
    ("features", put(80), "features must be from 0 to 79"),
    ("features", put(-1), "features must be from 0 to 79"),
    ("leaf_labels", put(40), "leaf_labels must be different ones from 0 to 39"),
    ("leaf_labels", put(-1), "leaf_labels must be different ones from 0 to 39"),
    ("leaf_labels", lambda t: put(int(t[1]))(t), "leaf_labels must be different ones from 0 to 39"),
    ("entry_counts", put(-1), "entry_counts must add up to"),
    ("entry_counts", lambda t: t + 1, "entry_counts must add up to"),
    ("entry_children", lambda t: t.fill_(255), "entry_children must be below"),
    ("scales", put(float("nan")), "something else than finite numbers"),
    ("biases", put(float("inf")), "something else than finite numbers"),
    ("entry_levels", lambda t: t.float(), "entry_levels has torch.float32; it should be torch.int8"),
    ("entry_levels", lambda t: t[:-1], "entry_levels has shape"),
]


@pytest.mark.parametrize(("name", "damage", "message"), TREE_DAMAGE)
def test_label_trees_that_are_no_trees_never_reach_the_search(tmp_path, monkeypatch, name, damage, message):
    def search(*_):
        raise AssertionError("searched")

    path = hostile(tmp_path / "m", label_tree_model(), changing_tree(name, damage))
    monkeypatch.setattr(label_tree, "search_tree", search)
    with pytest.raises(FileError, match=message) as refused:
        hb.load(path).top_k(rare_words()[0], 1)
    assert "\n" not in str(refused.value)


SIZES = ["parents", "leaves", "n_levels", "n_parent_features", "n_entries"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("value", [10**12, 10**40, -1, 0, 1.5, "3", None, [1], True, {}], ids=repr)
def test_label_trees_of_senseless_sizes_are_refused(tmp_path, size, value):
    path = hostile(tmp_path / "m", label_tree_model(), setting("network", "label_trees", 1, size, to=value))
    with pytest.raises(FileError) as refused:
        hb.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [None, {}, [], "trees", 3, [None], [{}], [{"parents": 1}], [[]] * 9, [{}] * 100_000],
    ids=lambda v: str(v)[:30],
)
def test_lists_of_label_trees_of_other_kinds_are_refused(tmp_path, value):
    path = hostile(tmp_path / "m", label_tree_model(), setting("network", "label_trees", to=value))
    with pytest.raises(FileError) as refused:
        hb.load(path)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 0.0, "1", None, [], 10**400])
def test_weights_of_label_trees_are_positive_numbers(tmp_path, value):
    path = hostile(tmp_path / "m", label_tree_model(), setting("network", "tree_weight", to=value))
    with pytest.raises(FileError) as refused:
        hb.load(path)
    assert "\n" not in str(refused.value)


# Sizes


def forest_model():
    rows, labels = parity()
    forest = fit_forest(rows, labels, n_trees=2)
    network = RidgeKnn.from_weights(
        torch.zeros(20, 12), torch.zeros(12), rows, labels, knn_weight=0, forest=forest, forest_weight=0.5
    )
    head = hb.HolographicHead(None, 12, 12, "one_hot")
    return hb.Model(network, head, hb.metrics.frequencies(labels))


def many_rows_of_many_trees(n_rows, n_trees):
    """Rows without features or labels: their offsets compress to nothing, and each has a leaf of each tree."""

    def change(header, tensors):
        config = header["network"]
        config |= {"rows": n_rows, "entries": 0, "labels": 0, "forest": {"n_trees": n_trees, "n_splits": 0}}
        for name in ("row_offsets", "label_offsets"):
            header["compressed"].pop(f"network.{name}", None)
            compressing(f"network.{name}", np.zeros(n_rows + 1, np.int64))(header, tensors)
        for name, dtype in (("row_ids", torch.int16), ("row_values", torch.float16), ("label_ids", torch.int16)):
            header["compressed"].pop(f"network.{name}", None)
            tensors[f"network.{name}"] = torch.empty(0, dtype=dtype)
        for name in ("levels", "branches"):
            header["compressed"].pop(f"network.forest.{name}", None)
        tensors["network.forest.levels"] = torch.empty(20, 0, dtype=torch.int8)
        tensors["network.forest.branches"] = torch.empty(0, 2, dtype=torch.int32)
        tensors["network.forest.thresholds"] = torch.empty(0)
        tensors["network.forest.roots"] = torch.full((n_trees,), -1, dtype=torch.int32)

    return change


def many_leaves(n_splits):
    """A forest of splits that are all 0, and of as many leaf values."""

    def change(header, tensors):
        header["network"]["forest"] = {"n_trees": 1, "n_splits": n_splits}
        compressing("network.forest.levels", np.zeros((20, n_splits), np.int8))(header, tensors)
        compressing("network.forest.branches", np.full((n_splits, 2), -1, np.int32))(header, tensors)
        tensors["network.forest.thresholds"] = torch.zeros(n_splits)
        tensors["network.forest.roots"] = torch.zeros(1, dtype=torch.int32)

    return change


LOAD_AND_PREDICT = """
    import numpy as np, sys, holobind as hb
    from scipy import sparse
    try:
        model = hb.load({path!r})
        model.top_k(sparse.csr_array(np.ones((2, {features}), np.float32)), 1)
        print("predicted")
    except hb.FileError as error:
        print("refused:", error)
"""


@pytest.mark.parametrize("change", [many_rows_of_many_trees(10**6, 256), many_rows_of_many_trees(10**7, 40)])
def test_a_small_file_makes_no_gigabytes_of_leaves(tmp_path, change):
    path = hostile(tmp_path / "m", forest_model(), change)
    assert path.stat().st_size < 4e6
    child = run_child(LOAD_AND_PREDICT.format(path=str(path), features=20))
    assert child.returncode == 0 and child.stdout.startswith("refused:"), child.stderr[-500:]
    assert child.stdout.count("\n") == 1 and "GB to predict with" in child.stdout


def test_a_model_within_the_bounds_predicts_within_them(tmp_path):
    path = hostile(tmp_path / "m", forest_model(), many_leaves(10**6))
    child = run_child(LOAD_AND_PREDICT.format(path=str(path), features=20))
    assert child.returncode == 0 and child.stdout == "predicted\n", child.stdout + child.stderr[-500:]


def compressed_training_rows(n_entries):
    """Training rows of one feature a million times over: a thousandth of their size in the file."""

    def change(header, tensors):
        header["network"] |= {"entries": n_entries}
        compressing("network.row_ids", np.zeros(n_entries, np.int16))(header, tensors)
        compressing("network.row_values", np.zeros(n_entries, np.float16))(header, tensors)
        offsets = np.append(np.zeros(N, np.int64), n_entries)
        header["compressed"].pop("network.row_offsets", None)
        tensors["network.row_offsets"] = torch.from_numpy(offsets)

    return change


@pytest.mark.parametrize("n_entries", [3 * 10**7, 10**9])
def test_training_rows_that_would_unpack_to_gigabytes_are_refused(tmp_path, n_entries):
    model = ridge_knn_model()
    claimed = min(n_entries, 3 * 10**7)
    path = hostile(tmp_path / "m", model, compressed_training_rows(claimed))
    if claimed < n_entries:  # the header alone claims the rest
        header, tensors = opened(path)
        header["compressed"]["network.row_ids"][1] = [n_entries]
        save_file(tensors, path, metadata={"holobind": json.dumps(header)})
    child = run_child(LOAD_AND_PREDICT.format(path=str(path), features=X.shape[1]))
    assert child.returncode == 0 and child.stdout.startswith("refused:"), child.stderr[-500:]


@pytest.mark.parametrize("n_sizes", [9, 300_000])
def test_a_shape_of_many_sizes_is_refused_at_once(tmp_path, n_sizes):
    def change(header, tensors):
        header["compressed"] = {"network.row_ids": ["torch.int16", [(1 << 47) + 1] * n_sizes, "none"]}

    path = hostile(tmp_path / "m", ridge_knn_model(), change)
    began = time.perf_counter()
    with pytest.raises(FileError, match="cannot be decompressed"):
        hb.load(path)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    "size", ["rows", "entries", "labels", "n_features", "out_features", "n_labels", "bits", "seed"]
)
@pytest.mark.parametrize("value", [10**12, 10**40, -1, 1.5, "3", None, [1], True, {}], ids=repr)
def test_a_network_of_senseless_sizes_is_refused(tmp_path, size, value):
    path = hostile(tmp_path / "m", ridge_knn_model(), setting("network", size, to=value))
    with pytest.raises(FileError) as refused:
        hb.load(path)
    assert "\n" not in str(refused.value)


def test_a_deep_header_is_refused(tmp_path):
    nested = []
    for _ in range(200):
        nested = [nested]
    path = hostile(tmp_path / "m", ridge_knn_model(), setting("metadata", "deep", to=nested))
    with pytest.raises(FileError, match="more than 64 levels"):
        hb.load(path)


# Metadata

STRANGE = [None, "text", 7, -1e308, [], [[]], {}, {"history": 1}, [1] * 10**5, "\x1b[2J\ud800\n", {"validation": [1]}]
USED = ["config", "data", "test", "training", "ridge", "knn", "holobind", "timings", "seconds", "rows", "estimator"]


@pytest.mark.parametrize("name", USED)
def test_inspect_shows_any_metadata(capsys, tmp_path, name):
    model = ridge_knn_model()
    for i, value in enumerate(STRANGE):
        path = hostile(tmp_path / f"m{i}", model, setting("metadata", name, to=value))
        code, out, err = run(capsys, "inspect", path)
        assert (code, err) == (0, "") and "\x1b" not in out and len(out) < 20_000, (value, err)
        assert run(capsys, "inspect", path, "--json")[0] == 0


@pytest.mark.parametrize(
    "training",
    [
        {"history": [{}]},
        {"history": [1], "config": {"metric": "P@1"}},
        {"history": {"a": 1}, "config": []},
        {"history": [{"P@1": 1}], "config": {"metric": "P@1"}, "best": "high", "best epoch": 1},
        {"history": [{"P@1": 1}], "config": {"metric": []}, "best": 1, "best epoch": 1},
    ],
    ids=str,
)
def test_inspect_shows_any_training(capsys, tmp_path, training):
    path = hostile(tmp_path / "m", build(), setting("metadata", "training", to=training))
    assert run(capsys, "inspect", path)[0] == 0


# Vocabularies


def saved_vocabulary(path):
    vocabulary = Vocabulary(16)
    vocabulary.parse("red*cat + blue*dog")
    vocabulary.save(path)
    return path


def rewritten(path, change):
    header, tensors = opened(path)
    change(header, tensors)
    save_file(tensors, path, metadata={"holobind": json.dumps(header)})
    return path


@pytest.mark.parametrize(
    "to",
    [
        lambda t: t.to(torch.int32),
        lambda t: t.to(torch.uint8),
        lambda t: t.bool(),
        lambda t: t.to(torch.float8_e4m3fn),
        lambda t: t.to(torch.complex64),
        lambda t: t * float("nan"),
        lambda t: t[:1],
        lambda t: t[:, :1].contiguous(),
    ],
)
def test_vectors_of_another_kind_are_refused(tmp_path, to):
    path = rewritten(saved_vocabulary(tmp_path / "v"), replacing("vectors", to))
    with pytest.raises(FileError):
        Vocabulary.load(path)


@pytest.mark.parametrize("name", ["names", "dim", "seed", "vsa", "large"])
@pytest.mark.parametrize("value", [True, -1, 0, 10**30, 1.0, "", [], [1], {}, ["a", "a"], [""]], ids=repr)
def test_a_vocabulary_with_a_senseless_header_is_refused_or_read(tmp_path, name, value):
    path = rewritten(saved_vocabulary(tmp_path / "v"), setting(name, to=value))
    try:
        assert isinstance(Vocabulary.load(path), Vocabulary)
    except FileError as error:
        assert "\n" not in str(error)


# Checkpoints


@pytest.mark.parametrize(
    "to",
    [
        lambda t: t.to(torch.int64),
        lambda t: t.to(torch.uint8),
        lambda t: t.double(),
        lambda t: t.to(torch.float8_e4m3fn),
        lambda t: t + float("nan"),
        lambda t: t.reshape(-1)[:0],
    ],
)
def test_a_checkpoint_with_other_numbers_is_refused_and_changes_nothing(tmp_path, to):
    model = build("fc")
    optimiser = optimisers(model, hb.TrainConfig())
    path = tmp_path / "c"
    labels, offsets = torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    model(model.examples(X[:1]).batch(np.arange(1)), labels, offsets).backward()
    for each in optimiser:
        each.step()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    checkpoint.write(path, {}, {}, model, before, optimiser)
    checkpoint.read(path, {}, model, optimiser)
    for name in opened(path)[1]:
        checkpoint.write(path, {}, {}, model, before, optimiser)
        rewritten(path, replacing(name, to))
        with pytest.raises(FileError, match="is damaged"):
            checkpoint.read(path, {}, model, optimiser)
        assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())


# Label texts


def changed(name, position, value):
    """Set an element of a tensor of label texts, which may be compressed in the file."""

    def change(header, tensors):
        full, described = f"label_text.{name}", header["compressed"].pop(f"label_text.{name}", None)
        tensor = tensors[full].clone()
        if described is not None:
            dtype = getattr(torch, described[0].removeprefix("torch."))
            tensor = torch.frombuffer(bytearray(zlib.decompress(tensor.numpy().tobytes())), dtype=dtype).clone()
        tensor[position] = value
        tensors[full] = tensor

    return change


def suggestion(label=3, value=1.0, end=1, n_labels=30):
    """One label is suggested for the name of the last one."""

    def change(header, tensors):
        offsets = torch.zeros(n_labels + 1, dtype=torch.int64)
        offsets[-1] = end
        arrays = (offsets, torch.tensor([label], dtype=torch.int32), torch.tensor([value], dtype=torch.float16))
        for name, tensor in zip(("offsets", "ids", "values"), arrays, strict=True):
            header["compressed"].pop(f"label_text.suggestions.{name}", None)
            tensors[f"label_text.suggestions.{name}"] = tensor

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("ids", 0, 10**6), "label_text.ids are not from 0"),
        (changed("ids", 0, -1), "label_text.ids are not from 0"),
        (changed("offsets", 1, -(2**63)), "label_text.offsets do not ascend"),
        (changed("offsets", 1, 2**62), "label_text.offsets do not ascend"),
        (changed("offsets", -1, 3), "label_text.offsets do not ascend"),
        (changed("text_counts", 0, 0), "label_text.text_counts do not divide"),
        (changed("text_counts", 0, 2**31 - 1), "label_text.text_counts do not divide"),
        (changed("values", 0, float("nan")), "holds something else than finite numbers"),
        (changed("values", 0, -0.5), "label_text.values are not the positive elements"),
        (changed("values", 0, 60_000.0), "label_text.values are not the positive elements"),
        (suggestion(label=30), "label_text.suggestions.ids are not from 0 to 29"),
        (suggestion(label=-1), "label_text.suggestions.ids are not from 0 to 29"),
        (suggestion(value=2.0), "label_text.suggestions.values are not the positive elements"),
        (suggestion(value=-0.5), "label_text.suggestions.values are not the positive elements"),
        (suggestion(end=2**62), "label_text.suggestions.offsets do not ascend"),
        (suggestion(n_labels=29), "label_text.suggestions are 29 for 30 labels"),
        (changed("idf", 0, -1.0), "label_text.words are damaged"),
        (setting("label_text", "weights", "zero_weight", to=1e9), "zero_weight must be a number from 0 to 100"),
        (setting("label_text", "weights", "half_rows", to=0), "half_rows must be larger than 0"),
        (setting("label_text", "weights", "weight", to="x"), "weight must be a number"),
        (setting("label_text", "weights", "embedding_weight", to=1.0), "belong together"),
        (setting("label_text", to=[]), "not a model as holobind writes them"),
        (lambda header, tensors: header.pop("label_text"), "which no model has"),
        (lambda header, tensors: tensors.pop("label_text.idf"), "not a model as holobind writes them"),
        (replacing("label_text.words", torch.zeros(9, dtype=torch.uint8)), "label_text.words are damaged"),
        (replacing("label_text.idf", torch.zeros(2, 2)), "shape"),
    ],
)  # fmt: skip
def test_senseless_label_texts_are_refused(tmp_path, change, message):
    path = hostile(tmp_path / "m", label_texts.model(), change)
    with pytest.raises(hb.FileError, match=message):
        hb.load(path)


def test_a_file_that_is_overwritten_in_place_does_not_change_the_loaded_model(tmp_path):
    """With a mapping it would; and a shorter file would end the process, by SIGBUS."""
    model, path = build("fc"), tmp_path / "m"
    model.save(path)
    loaded = hb.load(path)
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=0, atol=0)
