"""The eight public datasets of the paper: their published statistics, and how to fetch them.

They come from the Extreme Classification Repository. Its files lie on a host that requires a click in a browser, so no
program can download them. `fetch` prints the page to open and then installs the downloaded file. It can also download
from any other address, by https, resume an interrupted download and check the SHA-256. In every case the number of
points, features and labels is compared with the published numbers before the dataset is installed.
"""

import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holobind._files import atomic_directory
from holobind._types import ProgressCallback
from holobind.data.archives import unpack
from holobind.data.cache import cache_dir
from holobind.data.dataset import Dataset
from holobind.data.files import check_is_file
from holobind.data.formats import load
from holobind.errors import DataError, HolobindError, OptionError

PAGE = "http://manikvarma.org/downloads/XC/XMLRepository.html"
DOWNLOAD_CHUNK_BYTES = 1 << 20
DOWNLOAD_TIMEOUT_SECONDS = 60
MAX_DOWNLOAD_BYTES = 4 << 30  # unless `max_download` says otherwise; the largest of these archives has some 0.2 GB


@dataclass(frozen=True)
class Published:
    """The published statistics of a dataset.

    train, test          number of points
    features_per_point   rounded; only the synthetic generator uses it
    """

    name: str
    train: int
    test: int
    features: int
    labels: int
    points_per_label: float
    labels_per_point: float
    features_per_point: int
    page: str = PAGE

    @property
    def key(self) -> str:
        """The name in lower case, which is the name of its folder in the cache."""
        return self.name.lower()


# The paper prints 2.29 points per label for Delicious-200K. The repository has 72.29, which agrees with its points and
# labels per point: 196606 * 75.54 / 205443.
PUBLISHED = {
    dataset.key: dataset
    for dataset in (
        Published("Mediamill", 30993, 12914, 120, 101, 1902.15, 4.38, 120),
        Published("Bibtex", 4880, 2515, 1836, 159, 111.71, 2.40, 69),
        Published("Delicious", 12920, 3185, 500, 983, 311.61, 19.03, 18),
        Published("EURLex-4K", 15539, 3809, 5000, 3993, 25.73, 5.31, 237),
        Published("Wiki10-31K", 14146, 6616, 101938, 30938, 8.52, 18.64, 673),
        Published("Amazon-13K", 1186239, 306782, 203882, 13330, 448.57, 5.04, 71),
        Published("Delicious-200K", 196606, 100095, 782585, 205443, 72.29, 75.54, 301),
        Published("Amazon-670K", 490449, 153025, 135909, 670091, 3.99, 5.45, 76),
    )
}
ALIASES = {"amazoncat-13k": "amazon-13k", "eurlex": "eurlex-4k", "wiki10": "wiki10-31k"}


def published(name: str) -> Published:
    """The published statistics of a dataset by its name, in upper or lower case."""
    key = name.lower().replace("_", "-")
    key = ALIASES.get(key, key)
    if key not in PUBLISHED:
        raise OptionError(f"dataset {name!r} is unknown; choose one of {', '.join(PUBLISHED)}")
    return PUBLISHED[key]


def fetch(
    name: str,
    file: str | Path | None = None,
    *,
    url: str | None = None,
    sha256: str | None = None,
    allow_http: bool = False,
    max_download: int = MAX_DOWNLOAD_BYTES,
    max_uncompressed: int | None = None,
    on_sha256: Callable[[str], None] | None = None,
    on_progress: ProgressCallback | None = None,
) -> Path:
    """Install a published dataset in the user's cache directory and return its folder, which `load` reads.

    file               the archive (.zip or .tar) or the directory that you downloaded by hand
    url                an https address from which to download the archive; an interrupted download is resumed
    sha256             the expected checksum of the archive
    allow_http         accept http addresses, and redirects to them
    max_download       bytes that the archive may have
    max_uncompressed   bytes to which the archive and its files may expand, see `load`
    on_sha256          called with the checksum of the archive, before it is unpacked

    The dataset is installed only if its numbers of points, features and labels are the published ones. A downloaded
    archive is removed, whether it is installed or refused.
    """
    info = published(name)
    folder = cache_dir() / "datasets" / info.key
    if file is None and url is None:
        if folder.is_dir():
            return folder
        raise DataError(
            f"{info.name} has to be downloaded in a browser: open {info.page}, download it, and run "
            f"`holobind data fetch {info.key} --file FILE`"
        )
    if file is not None and url is not None:
        raise OptionError("give a file or an address, not both")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder.parent}: {error.strerror}; HOLOBIND_CACHE can name another directory") from error
    archive = Path(file) if file is not None else folder.parent / f"{info.key}.archive"
    try:
        if url is not None:
            download(url, archive, sha256, allow_http=allow_http, max_download=max_download, on_progress=on_progress)
        elif not archive.exists():
            raise DataError(f"{archive}: no such file or directory")
        if not archive.is_dir():
            found = _verify(archive, sha256)
            if on_sha256:
                on_sha256(found)
        _install(info, archive, folder, max_uncompressed, on_progress)
    except OSError as error:
        raise DataError(f"{error.filename or archive}: {error.strerror or error}") from error
    finally:
        if url is not None:
            archive.unlink(missing_ok=True)
    return folder


def download(
    url: str,
    target: Path,
    sha256: str | None = None,
    *,
    allow_http: bool = False,
    max_download: int = MAX_DOWNLOAD_BYTES,
    on_progress: ProgressCallback | None = None,
) -> None:
    """Download to `target`, which is written only when the download is complete and its checksum is correct.

    An interrupted download stays in `target` + ".part" and is resumed by the next call. A refused one is removed.
    """
    transfer = _Transfer(url, target.with_name(target.name + ".part"), allow_http, max_download, on_progress)
    _check_scheme(url, allow_http)
    resumed = transfer.n_bytes > 0
    transfer.run()
    try:
        _verify(transfer.partial, sha256)
    except DataError:
        transfer.partial.unlink()
        if not resumed:
            raise
        # The interrupted download may have been of another file, so start again from the beginning.
        transfer.run()
        try:
            _verify(transfer.partial, sha256)
        except DataError:
            transfer.partial.unlink()
            raise
    transfer.partial.replace(target)


def _check_scheme(url: str, allow_http: bool) -> None:
    scheme = urlsplit(url).scheme.lower()
    if scheme == "http" and not allow_http:
        raise OptionError(f"{url!r:.200} is not encrypted; use https, or --allow-http (in Python: allow_http=True)")
    if scheme not in ("http", "https"):
        raise OptionError(f"{url!r:.200} is not an address that begins with https://")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to allowed schemes only."""

    def __init__(self, allow_http: bool) -> None:
        self.allow_http = allow_http

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        """The request to the new address. One without encryption must be allowed, and one of files never is."""
        _check_scheme(newurl, self.allow_http)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class _Transfer:
    """A download into `partial`, of the bytes that it does not have yet."""

    url: str
    partial: Path
    allow_http: bool
    max_download: int
    on_progress: ProgressCallback | None

    @property
    def n_bytes(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def run(self) -> None:
        n_bytes, total = self.n_bytes, None
        request = urllib.request.Request(
            self.url, headers={"User-Agent": "holobind"} | ({"Range": f"bytes={n_bytes}-"} if n_bytes else {})
        )
        try:
            with self.open(request) as response:
                if n_bytes and response.status != http.HTTPStatus.PARTIAL_CONTENT:
                    n_bytes = 0  # the server ignores the range and sends the whole file
                length = response.headers.get("Content-Length", "")
                total = n_bytes + int(length) if length.isdecimal() and len(length) < 20 else None
                self.check_size(total or 0)
                with self.partial.open("ab" if n_bytes else "wb") as file:
                    while chunk := response.read(DOWNLOAD_CHUNK_BYTES):
                        n_bytes += len(chunk)
                        self.check_size(n_bytes)
                        file.write(chunk)
                        if self.on_progress:
                            self.on_progress(
                                f"downloading {self.url.rsplit('/', 1)[-1]}", n_bytes / total if total else 0
                            )
        except HolobindError:
            self.partial.unlink(missing_ok=True)
            raise
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and n_bytes:
                return  # the file is complete already
            raise DataError(f"{self.url}: the server answers {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise DataError(
                f"{self.url}: the download broke off at byte {n_bytes} ({reason}); run it again to resume"
            ) from error
        if total is not None and n_bytes < total:
            raise DataError(f"{self.url}: the download broke off at byte {n_bytes} of {total}; run it again to resume")

    def open(self, request: urllib.request.Request) -> Any:
        """Open an address with handlers of http and https only: none that reads files or ftp."""
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(self.allow_http),
        ):
            opener.add_handler(handler)
        return opener.open(request, timeout=DOWNLOAD_TIMEOUT_SECONDS)

    def check_size(self, n_bytes: int) -> None:
        if n_bytes > self.max_download:
            raise DataError(
                f"{self.url}: the archive has more than {self.max_download:,} bytes; if you trust it, "
                f"--max-download 20GB (in Python: max_download) raises that limit"
            )


def _verify(path: Path, sha256: str | None) -> str:
    """The SHA-256 of a file, which must be the expected one."""
    check_is_file(path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 is not None and found != sha256.strip().lower():
        raise DataError(f"{path.name.removesuffix('.part')}: the SHA-256 is {found}, expected {sha256.strip().lower()}")
    return found


def _install(
    info: Published, source: Path, folder: Path, max_uncompressed: int | None, on_progress: ProgressCallback | None
) -> None:
    """Unpack next to `folder`, compare with the published numbers, and then move to `folder`."""
    with atomic_directory(folder) as part:
        unpacked = part.with_name("unpacked")
        if source.is_dir():
            shutil.copytree(source, unpacked)
        else:
            unpack(source, unpacked, max_uncompressed)
        data_folder = _innermost_folder(unpacked)
        dataset = load(data_folder, cache=False, max_uncompressed=max_uncompressed, on_progress=on_progress)
        _check_published_sizes(info, dataset, source)
        part.rmdir()
        data_folder.rename(part)
        if folder.exists():
            shutil.rmtree(folder)


def _innermost_folder(folder: Path) -> Path:
    """Follow a chain of folders that contain nothing but one folder to its end."""
    inside = [p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX"))]
    while len(inside) == 1 and inside[0].is_dir():
        folder = inside[0]
        inside = [p for p in folder.iterdir() if not p.name.startswith(".")]
    return folder


def _check_published_sizes(info: Published, dataset: Dataset, source: Path) -> None:
    found = {
        "training points": len(dataset.train),
        "test points": len(dataset.test) if dataset.test is not None else 0,
        "features": dataset.n_features,
        "labels": dataset.n_labels,
    }
    expected = dict(zip(found, (info.train, info.test, info.features, info.labels), strict=True))
    for what, number in found.items():
        if number != expected[what]:
            raise DataError(f"{source}: {number} {what}, but {info.name} is published with {expected[what]}")
