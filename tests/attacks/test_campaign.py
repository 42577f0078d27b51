"""A short part of benchmarks/campaign.py with fixed seeds: mutated files for every loader, expressions, commands."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import campaign_inputs as campaign
import campaign_loaders as loaders

from holobind import _storage as storage

N_FILES, N_EXPRESSIONS, N_COMMANDS = 25, 400, 40
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("campaign")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "checksum", storage.checksum)  # which is put back
        loaders.accept_any_content()
        loaders.make_examples(place)
        yield place


@pytest.mark.parametrize("loader", loaders.LOADERS)
def test_a_mutated_file_is_read_or_refused_in_one_line(folder, loader):
    assert [campaign.attack_file(folder, loader, seed) for seed in range(N_FILES)] == [""] * N_FILES


def test_an_expression_has_a_finite_vector_or_an_error_of_one_line():
    assert [campaign.attack_expression(seed) for seed in range(N_EXPRESSIONS)] == [""] * N_EXPRESSIONS


def test_a_command_line_ends_with_0_or_with_2_and_one_line(folder):
    assert [campaign.attack_command(folder, seed) for seed in range(N_COMMANDS)] == [""] * N_COMMANDS


def test_an_attack_that_does_harm_is_found(folder, monkeypatch):
    """The campaign can fail: an exception of another kind, and a file that is read without a check."""
    monkeypatch.setitem(loaders.LOADERS, "words.vec", lambda path: path.read_bytes().decode())
    problems = [campaign.attack_file(folder, "words.vec", seed) for seed in range(200)]
    assert any("UnicodeDecodeError" in problem for problem in problems)
