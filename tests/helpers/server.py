"""A server of archives on this machine, honest or hostile."""

import contextlib
import http.server
import io
import threading
import zipfile

from holobind import data
from holobind.data import registry

TRAIN, TEST = b"3 5 4\n0 1:1\n1 2:1\n2 3:1\n", b"2 5 4\n3 0:1\n 4:1\n"
TOY = data.Published("Toy", 3, 2, 5, 4, 1.0, 1.0, 2)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `content`, with ranges.

    /truncated.zip   breaks off in the middle
    /stubborn.zip    ignores ranges
    /missing.zip     is not there
    /redirect        leads to `location`
    /liar            claims a size of 10^15
    /endless         has no end
    """

    content, location = b"", ""
    requested_ranges: list[str | None] = []  # noqa: RUF012

    def do_GET(self):
        wanted = self.headers.get("Range")
        Server.requested_ranges.append(wanted)
        if self.path == "/missing.zip":
            self.send_error(404)
            return
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", self.location)
            self.end_headers()
            return
        first = 0
        if wanted and self.path != "/stubborn.zip":
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(self.content):
                self.send_error(416)
                return
        body = self.content[first:]
        self.send_response(206 if first else 200)
        if self.path != "/endless":
            self.send_header("Content-Length", str(10**15 if self.path == "/liar" else len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has hung up
            self.wfile.write(body[: len(body) // 2] if self.path == "/truncated.zip" else body)
            while self.path == "/endless":
                self.wfile.write(bytes(1 << 16))

    def log_message(self, *args):
        pass


def zip_of(*members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in members:
            archive.writestr(member, text)
    return content.getvalue()


@contextlib.contextmanager
def serving(cache_folder, monkeypatch):
    """The address of a server of the dataset "toy", which is known meanwhile; datasets are installed in a folder."""
    monkeypatch.setenv("HOLOBIND_CACHE", str(cache_folder))
    monkeypatch.setitem(registry.PUBLISHED, "toy", TOY)
    Server.content = zip_of(("Toy/train.txt", TRAIN), ("Toy/test.txt", TEST))
    Server.requested_ranges = []
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()
    thread.join()


def fetched(cache_folder):
    """What is in the folder of fetched datasets."""
    folder = cache_folder / "datasets"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
