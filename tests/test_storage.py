"""Hostile and damaged files are refused with one line of ours; attacks stay here as tests."""

import json
import random
import zlib

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import holobind as hb
from holobind import _storage as storage
from holobind.errors import FileError


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


GOOD = {"kind": "vocabulary", "version": 1, "names": ["a"], "dim": 4, "seed": 0, "vsa": "unitary-hrr"}


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (None, "not one of holobind's"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "holds 'list', not a vocabulary"),
        ({"kind": "model", "version": 1}, "holds 'model', not a vocabulary"),
        ({**GOOD, "version": 2}, "format version 2; this holobind reads 1 to 1: update it"),
        ({**GOOD, "version": "1"}, "format version 1"),
        ({**GOOD, "dim": 10**12, "large": True}, "makes no sense"),
        ({**GOOD, "dim": -1}, "makes no sense"),
        ({**GOOD, "dim": "4"}, "makes no sense"),
        ({**GOOD, "dim": 5}, "one vector of 5 numbers for each of its 1 names"),
        ({**GOOD, "names": ["a", "a"]}, "makes no sense"),
        ({**GOOD, "names": ["a", "b"]}, "for each of its 2 names"),
        ({**GOOD, "names": [["a"]]}, "makes no sense"),
        ({**GOOD, "names": "a"}, "makes no sense"),
        ({**GOOD, "names": ["a\nb"]}, "printable"),
        ({**GOOD, "vsa": "__import__"}, "makes no sense"),
        ({**GOOD, "vsa": ["unitary-hrr"]}, "makes no sense"),
        ({**GOOD, "seed": None}, "makes no sense"),
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header, says):
    with pytest.raises(hb.FileError, match=says) as caught:
        hb.Vocabulary.load(hostile(tmp_path / "v.safetensors", header))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("vectors", [torch.ones(1, 4, dtype=torch.int32), torch.full((1, 4), torch.nan), torch.ones(4)])
def test_vectors_that_are_none_are_refused(tmp_path, vectors):
    with pytest.raises(hb.FileError):
        hb.Vocabulary.load(hostile(tmp_path / "v.safetensors", GOOD, vectors=vectors))


def test_a_missing_file_a_folder_and_an_unwritable_place_are_told(tmp_path, saved):
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


def test_a_file_with_changed_bytes_is_read_or_refused_but_never_crashes(saved):
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


@pytest.mark.parametrize("dtype", list(storage.DTYPES.values()), ids=str)
def test_deflated_tensors_come_back_as_they_were(tmp_path, dtype):
    tensors = {"a": torch.arange(1000).remainder(7).to(dtype).view(10, 100), "empty": torch.zeros(0, dtype=dtype)}
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, deflate=["a", "empty"])
    header, found = storage.read(tmp_path / "f", "thing", 1)
    assert "deflated" not in header
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype and torch.equal(found[name], tensor)
    plain = tmp_path / "plain"
    storage.write(plain, "thing", 1, {}, tensors)
    assert (tmp_path / "f").stat().st_size < plain.stat().st_size


def test_what_deflating_does_not_make_smaller_stays_as_it_is(tmp_path):
    tensors = {
        "noise": torch.randint(-128, 128, (1000,), dtype=torch.int8),
        "zeros": torch.zeros(10**6, dtype=torch.int8),
    }
    storage.write(tmp_path / "f", "thing", 1, {}, tensors, deflate=list(tensors))
    with safe_open(tmp_path / "f", framework="pt") as file:
        for name, tensor in tensors.items():  # zeros: a file whose tensors are so much larger is not read
            assert torch.equal(file.get_tensor(name), tensor)


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"a": None},
        {"b": ["torch.int8", [1000]]},
        {"a": ["torch.int8", [999]]},
        {"a": ["torch.int8", [1001]]},
        {"a": ["torch.int8", [10**12]]},
        {"a": ["torch.int8", [10**40, 0]]},
        {"a": ["torch.int8", [-1, -1000]]},
        {"a": ["torch.int8", [1e3]]},
        {"a": ["torch.complex64", [125]]},
        {"a": ["os.system", [1000]]},
        {"noise": ["torch.int8", [1000]]},
        {"floats": ["torch.int8", [1000]]},
    ],
    ids=str,
)
def test_deflated_tensors_that_are_not_what_they_claim_are_refused(tmp_path, said):
    tensors = {
        "a": torch.frombuffer(bytearray(zlib.compress(bytes(range(250)) * 4)), dtype=torch.uint8),
        "noise": torch.randint(256, (100,), dtype=torch.uint8),
        "floats": torch.ones(100),
    }
    hostile(tmp_path / "f", {"kind": "thing", "version": 1, "deflated": said}, **tensors)
    with pytest.raises(FileError, match="cannot be unpacked; get it again"):
        storage.read(tmp_path / "f", "thing", 1)


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path):
    bomb = torch.frombuffer(bytearray(zlib.compress(bytes(10**7))), dtype=torch.uint8)
    hostile(tmp_path / "f", {"kind": "thing", "version": 1, "deflated": {"a": ["torch.int8", [10**7]]}}, a=bomb)
    with pytest.raises(FileError, match="cannot be unpacked"):
        storage.read(tmp_path / "f", "thing", 1)
