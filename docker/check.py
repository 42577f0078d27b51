"""Asks a server in a container, or in the layout of one, and says what it found; run by docker/layout.sh."""

import json
import os
import socket
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

ADDRESS = "http://127.0.0.1:8000"
START_SECONDS = 120


def ask(path, body=None):
    sent = urllib.request.Request(
        ADDRESS + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['HOLOBIND_TOKEN']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return answer.read()


def is_writable(folder):
    try:
        (Path(folder) / f"holobind-{os.getpid()}").write_text("")
    except OSError:
        return False
    return True


def has_network():
    with suppress(OSError), socket.create_connection(("192.0.2.1", 80), 2):
        return True
    return False


def main():
    began = time.monotonic()
    while True:
        try:
            ask("/readyz")
            break
        except OSError:
            if time.monotonic() - began > START_SECONDS:
                raise
            time.sleep(0.1)
    (model,) = json.loads(ask("/v1/models"))["models"]
    texts = model["reads"] == "texts"
    row = {"text": "a text of some words"} if texts else {"features": {"1": 1.0}}
    found = json.loads(ask(f"/v1/models/{model['id']}/predict", row))["predictions"][0]
    kept = json.loads(ask(f"/v1/models/{model['id']}/learn", {"documents": [{**row, "labels": []}]}))
    print(  # noqa: T201
        json.dumps(
            {
                "user": os.getuid(),
                "writable": [each for each in ("/", "/usr", "/opt", "/etc", "/var") if is_writable(each)],
                "network": has_network(),
                "labels": model["labels"],
                "answered": "labels" in found,
                "accepted": kept["accepted"],
            }
        )
    )


if __name__ == "__main__":
    main()
