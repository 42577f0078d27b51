"""The interactive session of `holobind ask`."""

import pytest

import holobind as hb
from holobind.symbols.repl import Session, bars


@pytest.fixture
def reply():
    return Session(hb.Vocabulary(512)).reply


def test_a_session_sets_a_statement_queries_it_and_saves_the_names(reply, tmp_path):
    assert reply("red*cat + blue*dog") == "4 names in 512 dimensions: red, cat, blue, dog"
    assert reply("red?").startswith("cat ")
    assert reply("has red*cat").startswith("yes")
    assert reply("has red*dog").startswith("no")
    assert reply("names") == "red, cat, blue, dog"
    assert "4 names written" in reply(f"save {tmp_path / 'v.safetensors'}")
    assert list(hb.Vocabulary.load(tmp_path / "v.safetensors")) == ["red", "cat", "blue", "dog"]
    assert "set the statement" in reply("help")
    assert reply("quit") is None


def test_errors_do_not_end_a_session_or_change_its_statement(reply):
    assert "there is no statement yet" in reply("red?")
    reply("red*cat")
    assert "position 4" in reply("red(")
    assert "did you mean red" in reply("rde?")
    assert reply("red?").startswith("cat ")


def test_a_vtb_session_refuses_a_key_on_the_wrong_side():
    reply = Session(hb.Vocabulary(256, vsa="vtb")).reply
    reply("cat*red")
    assert reply("red?").startswith("cat ")
    assert "does not commute" in reply("cat?")


def test_the_length_of_a_bar_is_the_similarity():
    answers = [hb.Answer("cat", 1.0, 1.0, 1.0, 0.0), hb.Answer("longer", 0.5, 0.5, 0.5, 0.0)]
    first, second, last = bars(answers, width=10).splitlines()
    assert first.startswith("cat     ██████████  ")
    assert second.startswith("longer  █████       ")
    assert "0.0%" in last
