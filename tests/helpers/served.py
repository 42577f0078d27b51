"""`holobind serve` as a process."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

START_SECONDS = 120
TOKEN = "a-token-of-more-than-16-characters"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def served(*arguments, log=subprocess.DEVNULL, **environment):
    """The address and the process of a server that is ready."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "holobind", "serve", *map(str, arguments), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=log,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        last = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{address}/readyz", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, f"the server ended with {process.returncode}"
                assert time.monotonic() < last, "the server does not start"
                time.sleep(0.05)
        yield address, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_until(condition):
    """Wait until a condition is true."""
    last = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < last, "it never became true"
        time.sleep(0.005)
