"""Fetching from a local server with a valid file, a truncated file and another file."""

import hashlib
import zipfile

import pytest
from helpers.server import TEST, TRAIN, Server, fetched, serving

from holobind import data
from holobind.data import registry
from holobind.errors import DataError, OptionError


@pytest.fixture
def server(tmp_path, monkeypatch):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "train.txt").write_bytes(TRAIN)
    (folder / "test.txt").write_bytes(TEST)
    with serving(tmp_path / "cache", monkeypatch) as address:
        (tmp_path / "toy.zip").write_bytes(Server.content)
        yield address


def checksum():
    return hashlib.sha256(Server.content).hexdigest()


def installed(tmp_path):
    return fetched(tmp_path / "cache")


def test_a_valid_archive_is_installed_and_loads_by_name(server, tmp_path):
    folder = data.fetch("Toy", url=f"{server}/toy.zip", sha256=checksum(), allow_http=True)
    assert installed(tmp_path) == ["toy"] and folder == data.fetch("toy")
    assert len(data.load("toy").train) == 3


def test_a_truncated_download_is_an_error_and_is_resumed(server, tmp_path):
    size = len(Server.content)
    with pytest.raises(DataError, match=f"broke off at byte {size // 2}.*run it again to resume"):
        data.fetch("toy", url=f"{server}/truncated.zip", sha256=checksum(), allow_http=True)
    assert installed(tmp_path) == ["toy.archive.part"]
    data.fetch("toy", url=f"{server}/toy.zip", sha256=checksum(), allow_http=True)
    assert Server.requested_ranges == [None, f"bytes={size // 2}-"] and installed(tmp_path) == ["toy"]


def test_an_archive_with_another_checksum_is_refused(server, tmp_path):
    with pytest.raises(DataError, match=f"the SHA-256 is {checksum()}, expected {'0' * 64}"):
        data.fetch("toy", url=f"{server}/toy.zip", sha256="0" * 64, allow_http=True)
    assert installed(tmp_path) == []


@pytest.mark.parametrize("path", ["toy.zip", "stubborn.zip"])
@pytest.mark.parametrize("content", ["another file", "the whole file", "more than the file"])
def test_a_resumed_download_is_correct_whatever_the_partial_file_is(server, tmp_path, path, content):
    partial = tmp_path / "cache" / "datasets" / "toy.archive.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(
        {"another file": b"x" * 100, "the whole file": Server.content}.get(content, Server.content + b"more")
    )
    data.fetch("toy", url=f"{server}/{path}", sha256=checksum(), allow_http=True)
    assert installed(tmp_path) == ["toy"]


def test_a_server_that_ignores_ranges_is_read_from_the_beginning(server, tmp_path):
    (tmp_path / "file.part").write_bytes(Server.content[:50])
    data.download(f"{server}/stubborn.zip", tmp_path / "file", allow_http=True)
    assert (tmp_path / "file").read_bytes() == Server.content


def test_a_refused_download_is_an_error(server):
    with pytest.raises(DataError, match="the server answers 404"):
        data.fetch("toy", url=f"{server}/missing.zip", allow_http=True)
    with pytest.raises(DataError, match="broke off at byte 0"):
        data.fetch("toy", url="http://127.0.0.1:9/toy.zip", allow_http=True)
    with pytest.raises(OptionError, match="begins with https"):
        data.fetch("toy", url="file:///etc/passwd", allow_http=True)


def test_a_dataset_of_another_size_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.PUBLISHED, "toy", data.Published("Toy", 3, 2, 5, 9, 1.0, 1.0, 2))
    with pytest.raises(DataError, match="4 labels, but Toy is published with 9"):
        data.fetch("toy", tmp_path / "toy.zip")
    assert installed(tmp_path) == []


def test_a_file_downloaded_by_hand_is_installed(server, tmp_path):
    with pytest.raises(DataError, match=r"open http.*, download it, and run `holobind data fetch toy --file FILE`"):
        data.fetch("toy")
    for file in (tmp_path / "toy.zip", tmp_path / "source"):
        assert data.load(data.fetch("toy", file)).n_labels == 4
    assert (tmp_path / "toy.zip").exists() and (tmp_path / "source").exists()
    with pytest.raises(DataError, match="SHA-256"):
        data.fetch("toy", tmp_path / "toy.zip", sha256="0" * 64)
    (tmp_path / "page.zip").write_bytes(b"<html>sign in</html>")
    with pytest.raises(DataError, match=r"neither a .zip nor a .tar archive"):
        data.fetch("toy", tmp_path / "page.zip")
    with pytest.raises(DataError, match="no such file"):
        data.fetch("toy", tmp_path / "none.zip")
    with pytest.raises(OptionError, match="not both"):
        data.fetch("toy", tmp_path / "toy.zip", url=server)
    assert installed(tmp_path) == ["toy"]


def test_an_archive_cannot_write_elsewhere(server, tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../../../evil.txt", "1 1 1\n0 0:1\n")
    with pytest.raises(DataError):
        data.fetch("toy", tmp_path / "evil.zip")
    assert not list(tmp_path.rglob("evil.txt"))


def test_names_are_found_in_any_case_and_by_alias():
    assert data.published("AmazonCat-13K").name == data.published("amazon_13k").name == "Amazon-13K"
    with pytest.raises(OptionError, match="dataset 'mnist' is unknown; choose one of mediamill, bibtex"):
        data.published("mnist")
