"""`holobind ask`: single queries and an interactive session."""

import json

import pytest
from typer.testing import CliRunner

import holobind as hb
from holobind.cli.app import app


def ask(*arguments, **options):
    return CliRunner().invoke(app, ["ask", *arguments], **options)


def test_a_query_prints_the_best_name_first():
    assert ask("red*cat + blue*dog", "--query", "red").output.startswith("cat ")
    answered = json.loads(ask("red*cat + blue*dog", "-q", "red", "--json").output)
    assert answered["query"] == "red"
    assert answered["answers"][0]["name"] == "cat"
    assert answered["answers"][0]["present"] is True
    assert json.loads(ask("red*cat", "--has", "red*cat", "--json").output)["present"] is True


def test_a_session_reads_standard_input():
    found = ask(input="red*cat + blue*dog\nblue?\n")
    assert found.exit_code == 0
    assert "dog" in found.output


def test_a_saved_vocabulary_is_loaded(tmp_path):
    v = hb.Vocabulary(64, seed=9)
    v.parse("red*cat")
    v.save(tmp_path / "v.safetensors")
    found = ask("red*cat + blue*dog", "-q", "red", "--vocabulary", str(tmp_path / "v.safetensors"))
    assert found.output.startswith("cat ")


@pytest.mark.parametrize("arguments", [["red*(cat", "-q", "red"], ["red*cat", "-q", "rde"], ["--vocabulary", "none"]])
def test_errors_of_the_user_are_holobind_errors(arguments):
    assert isinstance(ask(*arguments).exception, hb.HolobindError)
