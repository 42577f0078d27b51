"""Fixtures and settings shared by all tests."""

import math
import signal

import pytest
import torch
from helpers.paths import real_data
from hypothesis import settings

from holobind.cli import terminal

settings.register_profile("holobind", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("holobind")

# A shell starts background jobs with Ctrl-C ignored, and processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Tests never read or write the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLOBIND_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_progress_lines():
    """However slow the machine is, a command prints to stderr what its test expects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "PROGRESS_LINE_SECONDS", math.inf)
        yield


@pytest.fixture(scope="module")
def one_thread():
    """For networks so small that threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def shared_data():
    """The folder of the real datasets, which are not part of the project."""
    folder = real_data()
    if not folder.is_dir():
        pytest.skip(f"there are no real datasets at {folder}; set HOLOBIND_DATA")
    return folder
