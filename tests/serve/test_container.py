"""The server runs as in its container: another user, read-only file system, no network (docker/layout.sh)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holobind

ROOT = Path(__file__).parents[2]


def can_unshare():
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    return shutil.which("setpriv") and shutil.which("unshare") and subprocess.run(command, check=False).returncode == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0 or not can_unshare(), reason="needs root and namespaces")
def test_the_server_runs_read_only_without_network_and_rights(model_files):
    environment = Path(sys.prefix)
    result = subprocess.run(
        ["sh", ROOT / "docker" / "layout.sh", environment, model_files[1]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(holobind.__file__).parents[1])},
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found == {
        "user": 10001,
        "writable": [],
        "network": False,
        "labels": 9,
        "answered": True,
        "accepted": 1,
    }


def test_the_image_and_the_layout_run_the_same_server():
    image, layout = ((ROOT / "docker" / name).read_text() for name in ("Dockerfile", "layout.sh"))
    entry = image.rpartition("ENTRYPOINT ")[2].strip()
    assert " ".join(json.loads(entry)).replace("holobind serve", "-m holobind serve") in layout
    for line in ("USER holobind", "HEALTHCHECK", "install.sh"):
        assert line in image
    assert "--uid 10001" in image
    assert "--reuid=10001" in layout
