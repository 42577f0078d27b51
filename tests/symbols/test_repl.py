"""`holobind ask`: one question, or a conversation."""

import json

import pytest
from typer.testing import CliRunner

import holobind as hb
from holobind.cli.main import app
from holobind.symbols.repl import Conversation, bars


@pytest.fixture
def talk():
    return Conversation(hb.Vocabulary(512)).reply


def test_a_conversation(talk, tmp_path):
    assert "4 names in 512 numbers: red, cat, blue, dog" in talk("red*cat + blue*dog")
    assert talk("red?").startswith("cat ")
    assert talk("has red*cat").startswith("yes")
    assert talk("has red*dog").startswith("no")
    assert talk("names") == "red, cat, blue, dog"
    assert "4 names written" in talk(f"save {tmp_path / 'v.safetensors'}")
    assert list(hb.Vocabulary.load(tmp_path / "v.safetensors")) == ["red", "cat", "blue", "dog"]
    assert "say it" in talk("help")
    assert talk("quit") is None


def test_mistakes_do_not_end_a_conversation_or_lose_what_was_said(talk):
    assert "nothing has been said yet" in talk("red?")
    talk("red*cat")
    assert "position 4" in talk("red(")
    assert "did you mean red" in talk("rde?")
    assert talk("red?").startswith("cat ")


def test_bars_grow_with_similarity():
    answers = [hb.Answer("cat", 1.0, 1.0, 1.0, 0.0), hb.Answer("longer", 0.5, 0.5, 0.5, 0.0)]
    first, second, last = bars(answers, width=10).splitlines()
    assert first.startswith("cat     ██████████  ")
    assert second.startswith("longer  █████       ")
    assert "0.0%" in last


def ask(*arguments, **options):
    return CliRunner().invoke(app, ["ask", *arguments], **options)


def test_one_shot():
    assert ask("red*cat + blue*dog", "--query", "red").output.startswith("cat ")
    answered = json.loads(ask("red*cat + blue*dog", "-q", "red", "--json").output)
    assert answered["query"] == "red"
    assert answered["answers"][0]["name"] == "cat"
    assert answered["answers"][0]["present"] is True
    assert json.loads(ask("red*cat", "--has", "red*cat", "--json").output)["present"] is True


def test_a_conversation_over_standard_input(tmp_path):
    found = ask(input="red*cat + blue*dog\nblue?\n")
    assert found.exit_code == 0
    assert "dog" in found.output


def test_a_saved_vocabulary_is_the_start(tmp_path):
    v = hb.Vocabulary(64, seed=9)
    v.parse("red*cat")
    v.save(tmp_path / "v.safetensors")
    found = ask("red*cat + blue*dog", "-q", "red", "--vocabulary", str(tmp_path / "v.safetensors"))
    assert found.output.startswith("cat ")


@pytest.mark.parametrize("arguments", [["red*(cat", "-q", "red"], ["red*cat", "-q", "rde"], ["--vocabulary", "none"]])
def test_mistakes_raise_ours_for_the_command_line_to_tell(arguments):
    assert isinstance(ask(*arguments).exception, hb.HolobindError)
