"""Models, small enough to train for a test, and servers of them."""

from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi", reason="holobind[serve] is not installed")

from helpers.models import build, text_model
from helpers.served import TOKEN
from starlette.testclient import TestClient

from holobind.serve import Settings, create_app


@pytest.fixture(scope="session")
def model_files(tmp_path_factory):
    """A model that reads texts, with the id fruit, and one that reads features, with the id rows."""
    folder = tmp_path_factory.mktemp("served")
    paths = [folder / "fruit.safetensors", folder / "rows.safetensors"]
    text_model().save(paths[0])
    build().save(paths[1])
    return paths


@pytest.fixture(scope="session")
def serve(model_files):
    """A function that opens a client of a server with some settings."""

    @contextmanager
    def opened(paths=None, **settings):
        with TestClient(create_app(paths or model_files, Settings(**settings)), base_url="http://127.0.0.1") as client:
            yield client

    return opened


@pytest.fixture(scope="session")
def client(serve):
    with serve() as opened:
        yield opened


@pytest.fixture
def teacher(serve, tmp_path):
    """A client with the token of a server that keeps corrections."""
    with serve(token=TOKEN, journal=tmp_path / "journal") as opened:
        opened.headers["Authorization"] = f"Bearer {TOKEN}"
        yield opened
