"""Hostile, damaged and outdated files are refused in one line; every known attack is a test."""

import json
import random
import zlib

import numpy as np
import pytest
import torch
from helpers.processes import run_together
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import holobind as hb
from holobind import _storage as storage
from holobind.errors import DataError, FileError


@pytest.fixture
def saved(tmp_path):
    v = hb.Vocabulary(16)
    v.parse("red*cat")
    v.save(tmp_path / "v.safetensors")
    return tmp_path / "v.safetensors"


def hostile(path, header, **tensors):
    metadata = None if header is None else {"holobind": header if isinstance(header, str) else json.dumps(header)}
    save_file(tensors or {"vectors": torch.ones(1, 4)}, path, metadata=metadata)
    return path


VALID = {"kind": "vocabulary", "version": 2, "names": ["a"], "dim": 4, "seed": 0, "vsa": "unitary-hrr"}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "not one of holobind's"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "holds 'list', not a vocabulary"),
        ({"kind": "model", "version": 2}, "holds 'model', not a vocabulary"),
        (
            {**VALID, "version": 1},
            r"an older holobind \(format version 1\); this holobind reads version 2: build it again",
        ),
        (
            {**VALID, "version": 3},
            r"a newer holobind \(format version 3\); this holobind reads version 2: update holobind",
        ),
        ({**VALID, "version": "2"}, "no valid format version, but '2'"),
        ({**VALID, "version": True}, "no valid format version"),
        ({**VALID, "version": 0}, "no valid format version"),
        ({**VALID, "version": 10**400}, "no valid format version"),
        ({**VALID, "version": None}, "no valid format version"),
        ({**VALID, "dim": 10**12, "large": True}, "invalid vocabulary header"),
        ({**VALID, "dim": -1}, "invalid vocabulary header"),
        ({**VALID, "dim": "4"}, "invalid vocabulary header"),
        ({**VALID, "dim": 5}, "one vector of 5 dimensions for each of its 1 names"),
        ({**VALID, "names": ["a", "a"]}, "invalid vocabulary header"),
        ({**VALID, "names": ["a", "b"]}, "for each of its 2 names"),
        ({**VALID, "names": [["a"]]}, "invalid vocabulary header"),
        ({**VALID, "names": "a"}, "invalid vocabulary header"),
        ({**VALID, "names": ["a\nb"]}, "printable"),
        ({**VALID, "vsa": "__import__"}, "invalid vocabulary header"),
        ({**VALID, "vsa": ["unitary-hrr"]}, "invalid vocabulary header"),
        ({**VALID, "seed": None}, "invalid vocabulary header"),
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header, message):
    with pytest.raises(hb.FileError, match=message) as caught:
        hb.Vocabulary.load(hostile(tmp_path / "v.safetensors", header))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("vectors", [torch.ones(1, 4, dtype=torch.int32), torch.full((1, 4), torch.nan), torch.ones(4)])
def test_invalid_vectors_are_refused(tmp_path, vectors):
    with pytest.raises(hb.FileError):
        hb.Vocabulary.load(hostile(tmp_path / "v.safetensors", VALID, vectors=vectors))


def test_a_missing_file_a_folder_and_an_unwritable_path_are_errors(tmp_path, saved):
    with pytest.raises(hb.FileError, match="is not a file"):
        hb.Vocabulary.load(tmp_path / "none")
    with pytest.raises(hb.FileError, match="is not a file"):
        hb.Vocabulary.load(tmp_path)
    with pytest.raises(hb.FileError, match="cannot be written"):
        hb.Vocabulary.load(saved).save(tmp_path / "nowhere" / "v.safetensors")


def test_truncated_files_are_refused(saved):
    whole = saved.read_bytes()
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        with pytest.raises(hb.FileError):
            hb.Vocabulary.load(saved)


def test_a_file_with_changed_bytes_is_read_or_refused(saved):
    whole = saved.read_bytes()
    draw = random.Random(0)
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(min(len(changed), 300))] = draw.randrange(256)
        saved.write_bytes(changed)
        try:
            assert hb.Vocabulary.load(saved).vectors.isfinite().all()
        except hb.FileError as error:
            assert "\n" not in str(error)


def test_every_flipped_bit_of_a_tensor_is_noticed(tmp_path):
    tensors = {
        "weights": torch.randn(20, dtype=torch.float16),
        "number": torch.tensor(3.0),
        "bfloat": torch.ones(3, dtype=torch.bfloat16),
        "empty": torch.zeros(0),
        "small": torch.arange(1000).remainder(7),
    }
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, compress=["small"])
    whole = (tmp_path / "f").read_bytes()
    assert storage.CHECKSUM not in storage.read(tmp_path / "f", "thing", 1)[0]
    start = 8 + int.from_bytes(whole[:8], "little")
    for at in range(start, len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        (tmp_path / "f").write_bytes(changed)
        with pytest.raises(FileError, match="is damaged: its content does not have the header's checksum"):
            storage.read(tmp_path / "f", "thing", 1)


@pytest.mark.parametrize("dtype", list(storage.COMPRESSIBLE_DTYPES.values()), ids=str)
def test_compressed_tensors_are_read_back(tmp_path, dtype):
    tensors = {"a": torch.arange(1000).remainder(7).to(dtype).view(10, 100), "empty": torch.zeros(0, dtype=dtype)}
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, compress=["a", "empty"])
    header, found = storage.read(tmp_path / "f", "thing", 1)
    assert "compressed" not in header
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype and torch.equal(found[name], tensor)
    uncompressed = tmp_path / "uncompressed"
    storage.write(uncompressed, "thing", 1, {}, tensors)
    assert (tmp_path / "f").stat().st_size < uncompressed.stat().st_size


@settings(max_examples=50)
@given(
    dtype=st.sampled_from(list(storage.COMPRESSIBLE_DTYPES.values())),
    kind=st.sampled_from(["any", "ascending", "extreme"]),
    n=st.integers(1, 200),
    seed=st.integers(0, 2**16),
)
def test_each_filter_is_undone_to_the_bit(dtype, kind, n, seed):
    """Also where differences of neighbours do not fit."""
    name, rng = str(dtype).removeprefix("torch."), np.random.default_rng(seed)
    bits = rng.integers(0, 256, (n, dtype.itemsize), dtype=np.uint8)
    if kind == "extreme":
        bits = rng.choice(np.array([0, 127, 128, 255], np.uint8), bits.shape)
    array = np.ascontiguousarray(bits).reshape(-1).view(name)
    if kind == "ascending" and dtype != torch.float16:
        array = np.sort(array)
    for used in storage.Filter:
        if used.allows(array.dtype):
            packed = used.pack(array)
            assert packed.dtype == np.uint8 and packed.nbytes == array.nbytes
            assert used.unpack(packed, array.dtype).tobytes() == array.tobytes()
        else:
            assert used is not storage.Filter.NONE


def test_ascending_ids_are_stored_as_gaps_and_small_integers_as_planes(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "ids": torch.from_numpy(np.cumsum(rng.integers(1, 50, 400_000)).astype(np.int32)),
        "counts": torch.from_numpy((rng.integers(1, 20, 400_000) ** 2).astype(np.int32)),
        "letters": torch.from_numpy(np.tile(rng.integers(0, 200, 1000), 400).astype(np.uint8)),
    }
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, compress=list(tensors))
    with safe_open(tmp_path / "f", framework="pt") as file:
        header = json.loads(file.metadata()[storage.METADATA_KEY])
        sizes = {name: file.get_tensor(name).numel() for name in tensors}
    assert {name: claim[2] for name, claim in header["compressed"].items()} == {
        "ids": "gaps",
        "counts": "planes",
        "letters": "none",
    }
    for name in ("ids", "counts"):
        assert sizes[name] < 0.95 * len(zlib.compress(tensors[name].numpy().tobytes(), 6))
    for name, tensor in storage.read(tmp_path / "f", "thing", 1)[1].items():
        assert torch.equal(tensor, tensors[name])


def test_a_tensor_is_not_compressed_if_that_does_not_help_or_would_exceed_the_ratio(tmp_path):
    tensors = {
        "noise": torch.randint(-128, 128, (1000,), dtype=torch.int8),
        "zeros": torch.zeros(10**6, dtype=torch.int8),
    }
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, compress=list(tensors))
    with safe_open(tmp_path / "f", framework="pt") as file:
        for name, tensor in tensors.items():  # `read` refuses a ratio as that of the zeros
            assert torch.equal(file.get_tensor(name), tensor)


@pytest.mark.parametrize(
    "claim",
    [
        [],
        {"a": None},
        {"b": ["torch.int8", [1000], "none"]},
        {"a": ["torch.int8", [999], "none"]},
        {"a": ["torch.int8", [1001], "none"]},
        {"a": ["torch.int8", [10**12], "none"]},
        {"a": ["torch.int8", [10**40, 0], "none"]},
        {"a": ["torch.int8", [-1, -1000], "none"]},
        {"a": ["torch.int8", [1e3], "none"]},
        {"a": ["torch.complex64", [125], "none"]},
        {"a": ["os.system", [1000], "none"]},
        {"noise": ["torch.int8", [1000], "none"]},
        {"floats": ["torch.int8", [1000], "none"]},
        {"a": ["torch.int8", [1000]]},
        {"a": ["torch.int8", [1000], "gaps"]},
        {"a": ["torch.int8", [1000], "planes"]},
        {"a": ["torch.float16", [500], "gaps"]},
        {"a": ["torch.int16", [500], "zstd"]},
        {"a": ["torch.int16", [500], ["gaps"]]},
        {"a": ["torch.int16", [501], "gaps"]},
    ],
    ids=str,
)
def test_compressed_tensors_that_are_not_what_they_claim_are_refused(tmp_path, claim):
    tensors = {
        "a": torch.frombuffer(bytearray(zlib.compress(bytes(range(250)) * 4)), dtype=torch.uint8),
        "noise": torch.randint(256, (100,), dtype=torch.uint8),
        "floats": torch.ones(100),
    }
    hostile(tmp_path / "f", {"kind": "thing", "version": 1, "compressed": claim}, **tensors)
    with pytest.raises(FileError, match="cannot be decompressed; get it again"):
        storage.read(tmp_path / "f", "thing", 1)


def test_a_decompression_bomb_is_refused_before_it_fills_memory(tmp_path):
    bomb = torch.frombuffer(bytearray(zlib.compress(bytes(10**7))), dtype=torch.uint8)
    hostile(
        tmp_path / "f", {"kind": "thing", "version": 1, "compressed": {"a": ["torch.int8", [10**7], "none"]}}, a=bomb
    )
    with pytest.raises(FileError, match="cannot be decompressed"):
        storage.read(tmp_path / "f", "thing", 1)


@pytest.mark.parametrize(("kind", "advice"), [("model", "train it again"), ("thing", "create it again")])
def test_a_file_of_another_version_is_refused_in_one_line(tmp_path, kind, advice):
    storage.write(tmp_path / "f", kind, 2, {}, {"a": torch.ones(1)})
    assert storage.read(tmp_path / "f", kind, 2)[1]["a"] == 1
    for version, message in (
        (3, rf"older .* \(format version 2\); .* reads version 3: {advice}"),
        (1, "update holobind"),
    ):
        with pytest.raises(FileError, match=message) as caught:
            storage.read(tmp_path / "f", kind, version)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [[""], ["a"], ["", "b", ""], ["é\u2028\r", "x" * 60_000], ["name"] * 100_000])
def test_packed_lines_are_unpacked(names):
    packed = storage.pack_lines(names)
    assert storage.unpack_lines(packed, len(names)) == names
    assert storage.unpack_lines(packed, len(names) + 1) is None
    assert storage.unpack_lines(packed[:-1], len(names)) is None


def test_lines_that_cannot_be_stored_are_refused():
    for names, message in (
        (["a\nb"], "line break"),
        ([1], "not a string"),
        (["\ud800"], "surrogate"),
        (["x" * 10**6], "long"),
    ):
        with pytest.raises(DataError, match=message):
            storage.pack_lines(names)


def test_lines_that_decompress_to_more_than_their_limit_are_refused():
    bomb = torch.frombuffer(bytearray(zlib.compress(b"a" * 10**7)), dtype=torch.uint8)
    assert storage.unpack_lines(bomb, 1) is None


def test_processes_that_share_compression_write_the_bytes_of_one(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {f"t{i}": torch.from_numpy(rng.integers(0, 2 + i, 50 + 40 * i)) for i in range(7)}
    tensors["plain"] = torch.ones(3)
    compressed = [name for name in tensors if name != "plain"]
    storage.write(tmp_path / "alone", "thing", 1, {}, tensors, compressed)
    run_together(
        3, lambda processes: storage.write(tmp_path / "shared", "thing", 1, {}, tensors, compressed, processes)
    )
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "shared").read_bytes()
