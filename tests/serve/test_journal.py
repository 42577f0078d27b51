"""An accepted correction is never lost, and a broken line harms no other."""

import pytest

from holobind.errors import FileError
from holobind.serve.journal import Journal


def test_documents_are_read_as_they_were_added(tmp_path):
    journal = Journal(tmp_path / "journal")
    first, second = {"text": "a\nb é\u2028", "labels": ["x"]}, {"features": {"1": 0.5}, "labels": [3]}
    assert journal.add("m", "v1", "b", [first]) == journal.size("m")
    journal.add("m", "v2", "b", [second, first])
    found = list(Journal(tmp_path / "journal").read("m"))
    assert [each["version"] for each in found] == ["v1", "v2", "v2"]
    assert [{k: each[k] for k in each if k not in ("time", "version", "base")} for each in found] == [
        first,
        second,
        first,
    ]
    assert list(journal.read("other")) == []


@pytest.mark.parametrize("kept", range(1, 40, 6))
def test_a_line_that_a_crash_cut_off_harms_no_other(tmp_path, kept):
    journal = Journal(tmp_path)
    journal.add("m", "v", "b", [{"text": "first", "labels": []}])
    whole = journal.path("m").read_bytes()
    journal.path("m").write_bytes(whole + whole[:kept])
    journal.add("m", "v", "b", [{"text": "third", "labels": []}])
    assert [each["text"] for each in journal.read("m")] == ["first", "third"]


def test_a_journal_is_read_in_parts_up_to_the_last_whole_line(tmp_path):
    journal = Journal(tmp_path)
    journal.add("m", "v", "b", [{"text": str(i), "labels": []} for i in range(5)])
    with journal.path("m").open("ab") as file:
        file.write(b'{"text": "being written"')
    found, position = journal.read_from("m", 0, 3)
    assert [each["text"] for each in found] == ["0", "1", "2"]
    found, end = journal.read_from("m", position, 3)
    assert [each["text"] for each in found] == ["3", "4"]
    assert journal.read_from("m", end, 3) == ([], end)
    assert end < journal.size("m")
    assert journal.read_from("other", 7, 3) == ([], 7)


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        Journal(tmp_path / "file")
