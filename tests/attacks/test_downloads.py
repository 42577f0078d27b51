"""Hostile servers and archives: nothing is installed, nothing is left, nothing is written elsewhere."""

import hashlib
import io
import json
import os
import tarfile
import zipfile

import pytest
from helpers.commands import run
from helpers.server import TEST, TRAIN, Server, fetched, serving, zip_of

from holobind import data
from holobind.data import files, registry
from holobind.data.archives import unpack
from holobind.errors import DataError, HolobindError, OptionError


@pytest.fixture
def server(tmp_path, monkeypatch):
    with serving(tmp_path / "cache", monkeypatch) as address:
        yield address


def left(tmp_path):
    return fetched(tmp_path / "cache")


# Servers


def test_http_must_be_allowed(server, tmp_path):
    with pytest.raises(OptionError, match=r"is not encrypted; use https, or --allow-http"):
        data.fetch("toy", url=f"{server}/toy.zip")
    assert left(tmp_path) == []
    data.fetch("toy", url=f"{server}/toy.zip", allow_http=True)
    assert left(tmp_path) == ["toy"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/a.zip", "data:,x", "/etc/passwd", "", "x:y"])
def test_other_schemes_are_refused(server, tmp_path, url):
    for options in ({}, {"allow_http": True}):
        with pytest.raises(OptionError, match="not an address that begins with https"):
            data.fetch("toy", url=url, **options)
    assert left(tmp_path) == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/toy.zip", "data:text/plain,x"])
def test_a_redirect_to_another_scheme_is_refused(server, tmp_path, location):
    Server.location = location
    with pytest.raises(HolobindError) as caught:
        data.fetch("toy", url=f"{server}/redirect", allow_http=True)
    assert "\n" not in str(caught.value) and left(tmp_path) == []


def test_a_redirect_to_http_must_be_allowed(server):
    redirects = registry._Redirects(allow_http=False)
    request = registry.urllib.request.Request("https://example.org/toy.zip")
    with pytest.raises(OptionError, match="is not encrypted"):
        redirects.redirect_request(request, None, 302, "Found", {}, "http://example.org/toy.zip")
    Server.location = f"{server}/toy.zip"
    assert data.fetch("toy", url=f"{server}/redirect", allow_http=True).is_dir()


@pytest.mark.parametrize("path", ["endless", "liar", "toy.zip"])
def test_a_download_above_the_limit_is_refused_and_removed(server, tmp_path, path):
    with pytest.raises(DataError, match=r"the archive has more than 100 bytes; if you trust it, --max-download 20GB"):
        data.fetch("toy", url=f"{server}/{path}", allow_http=True, max_download=100)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "content", [b"<html>sign in</html>", b"", b"PK\x03\x04 no zip", zip_of(("train.txt", b"no rows"))]
)
def test_a_refused_archive_is_removed(server, tmp_path, content):
    Server.content = content
    with pytest.raises(DataError) as caught:
        data.fetch("toy", url=f"{server}/toy.zip", allow_http=True)
    assert "\n" not in str(caught.value) and left(tmp_path) == []


def test_the_checksum_is_always_shown_and_compared_if_given(server, tmp_path):
    expected, seen = hashlib.sha256(Server.content).hexdigest(), []
    data.fetch("toy", url=f"{server}/toy.zip", allow_http=True, on_sha256=seen.append)
    (tmp_path / "mine.zip").write_bytes(Server.content)
    data.fetch("toy", tmp_path / "mine.zip", sha256=expected.upper(), on_sha256=seen.append)
    assert seen == [expected, expected]
    with pytest.raises(DataError, match=f"the SHA-256 is {expected}, expected {'0' * 64}"):
        data.fetch("toy", url=f"{server}/toy.zip", allow_http=True, sha256="0" * 64)
    assert left(tmp_path) == ["toy"] and (tmp_path / "mine.zip").exists()


def test_the_command_prints_the_checksum_of_a_refused_file_too(capsys, server, tmp_path):
    (tmp_path / "mine.zip").write_bytes(Server.content)
    code, out, err = run(capsys, "data", "fetch", "bibtex", "--file", tmp_path / "mine.zip", "--json")
    assert code == 2 and out == ""
    assert f"SHA-256 {hashlib.sha256(Server.content).hexdigest()}\n" in err
    assert "but Bibtex is published with" in err and (tmp_path / "mine.zip").exists()


# Archives


def tar_of(*members, mode="w"):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:
        for name, text, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(text), kind, "/etc/passwd"
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


def zip_link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member


EVIL = {
    "zip ..": zip_of(("../evil.txt", b"x")),
    "zip deep ..": zip_of(("a/../../evil.txt", b"x")),
    "zip absolute": zip_of(("/tmp/holobind-evil.txt", b"x")),
    "zip backslash": zip_of(("..\\evil.txt", b"x")),
    "zip drive": zip_of(("C:\\evil.txt", b"x")),
    "zip link": zip_of((zip_link("train.txt"), b"/etc/passwd")),
    "tar ..": tar_of(("../evil.txt", b"x", tarfile.REGTYPE)),
    "tar absolute": tar_of(("/tmp/holobind-evil.txt", b"x", tarfile.REGTYPE)),
    "tar symbolic link": tar_of(("train.txt", b"", tarfile.SYMTYPE)),
    "tar hard link": tar_of(("train.txt", b"", tarfile.LNKTYPE)),
    "tar device": tar_of(("train.txt", b"", tarfile.CHRTYPE)),
    "tar pipe": tar_of(("train.txt", b"", tarfile.FIFOTYPE)),
    "tar.gz link": tar_of(("train.txt", b"", tarfile.SYMTYPE), mode="w:gz"),
}


@pytest.mark.parametrize("name", EVIL)
def test_a_member_that_is_no_file_below_the_folder_is_refused(server, tmp_path, name):
    (tmp_path / "evil").write_bytes(EVIL[name])
    with pytest.raises(DataError, match=r"outside of its folder|a link or a device"):
        data.fetch("toy", tmp_path / "evil")
    assert left(tmp_path) == [] and not list(tmp_path.rglob("*evil.txt"))
    assert not os.path.lexists("/tmp/holobind-evil.txt")


def encrypted_zip():
    content = bytearray(zip_of(("train.txt", TRAIN)))
    content[content.find(b"PK\x03\x04") + 6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def zip_that_claims_less():
    """Its directory says 10 bytes; the compressed data has a million."""
    content = bytearray(zip_of(("train.txt", b"0 0:1\n" * 200_000)))
    for magic, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = content.find(magic) + at
        content[place : place + 4] = (10).to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        encrypted_zip(),
        zip_that_claims_less(),
        zip_of(("train.txt", TRAIN))[:-30],
        tar_of(("train.txt", TRAIN, tarfile.REGTYPE))[:700],
        tar_of(("train.txt", TRAIN * 1000, tarfile.REGTYPE), mode="w:gz")[:-20],
        tar_of(("train.txt", TRAIN, tarfile.REGTYPE), mode="w:xz")[:-20],
        zip_of(("train.txt", TRAIN), ("train.txt/deeper.txt", TRAIN)),
        tar_of(("train.txt", TRAIN, tarfile.REGTYPE), ("train.txt", TRAIN, tarfile.REGTYPE)),
    ],
    ids=["encrypted", "lies", "zip cut", "tar cut", "gz cut", "xz cut", "file as folder", "twice"],
)
def test_a_damaged_archive_is_one_line(server, tmp_path, content):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(DataError) as caught:
        data.fetch("toy", tmp_path / "archive")
    assert "\n" not in str(caught.value) and left(tmp_path) == []


@pytest.mark.parametrize("mode", ["zip", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_that_expands_is_refused_and_an_option_allows_it(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(files, "MIN_EXPANSION_BYTES", 10_000)
    zeros = bytes(5_000_000)
    content = zip_of(("a", zeros)) if mode == "zip" else tar_of(("a", zeros, tarfile.REGTYPE), mode=mode)
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(DataError, match=r"it expands to more than .* --max-uncompressed"):
        unpack(tmp_path / "archive", tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= max(10_000, 100 * len(content))
    unpack(tmp_path / "archive", tmp_path / "allowed", max_uncompressed=6_000_000)
    assert (tmp_path / "allowed" / "a").stat().st_size == len(zeros)


def test_an_archive_of_very_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("holobind.data.archives.MAX_MEMBERS", 5)
    (tmp_path / "archive").write_bytes(zip_of(*((f"{i}.txt", b"") for i in range(6))))
    with pytest.raises(DataError, match="more than 5 files"):
        unpack(tmp_path / "archive", tmp_path / "out")


def test_a_file_without_a_name_in_an_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr("x", b"content")
    named = (tmp_path / "archive").read_bytes()
    central = named.rindex(b"PK\x01\x02")  # the directory: 46 bytes, then the name
    end = central + 46
    nameless = named[: central + 28] + b"\0\0" + named[central + 30 : end] + named[end + 1 :]
    size = nameless.rindex(b"PK\x05\x06") + 12  # the size of the directory, one byte less
    (tmp_path / "archive").write_bytes(nameless[:size] + (46).to_bytes(4, "little") + nameless[size + 4 :])
    with pytest.raises(DataError, match="a file in it has no name; the archive is refused"):
        unpack(tmp_path / "archive", tmp_path / "out")


def test_a_pipe_as_the_archive_is_refused(server, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a pipe or a device"):
        data.fetch("toy", tmp_path / "pipe")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_valid_tar_archives_are_installed(server, tmp_path, mode):
    members = [(f"Toy/{name}", text, tarfile.REGTYPE) for name, text in (("train.txt", TRAIN), ("test.txt", TEST))]
    (tmp_path / "archive").write_bytes(tar_of(("Toy", b"", tarfile.DIRTYPE), *members, mode=mode))
    assert len(data.load(data.fetch("toy", tmp_path / "archive")).train) == 3
    assert left(tmp_path) == ["toy"]


def test_the_json_of_fetch_has_the_checksum(capsys, server, tmp_path):
    (tmp_path / "mine.zip").write_bytes(Server.content)
    code, out, _ = run(capsys, "data", "fetch", "toy", "--file", tmp_path / "mine.zip", "--json")
    assert code == 0 and json.loads(out)["sha256"] == hashlib.sha256(Server.content).hexdigest()
