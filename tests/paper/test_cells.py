"""A finished cell is stored as one line of JSON and not computed again."""

import json
from functools import partial

import pytest
from holobind_paper import cells


def counted(numbers):
    """Cells with the squares of `numbers`, and how often each was computed."""
    runs = dict.fromkeys(numbers, 0)

    def compute(n):
        runs[n] += 1
        return {"square": n * n}

    return [cells.Cell({"dataset": "some", "n": n, "seed": 0}, partial(compute, n)) for n in numbers], runs


def test_a_finished_cell_is_not_computed_again_and_a_new_one_is(tmp_path):
    wanted, runs = counted([1, 2])
    first = cells.finish(tmp_path, "squares", wanted)
    again = cells.finish(tmp_path, "squares", wanted)
    assert first == again
    assert [row["square"] for row in first] == [1, 4]
    wanted, later = counted([1, 2, 3])
    assert [row["square"] for row in cells.finish(tmp_path, "squares", wanted)] == [1, 4, 9]
    assert (runs, later) == ({1: 1, 2: 1}, {1: 0, 2: 0, 3: 1})


def test_a_table_has_one_file_with_one_line_for_each_cell(tmp_path):
    wanted, _ = counted([1, 2])
    cells.finish(tmp_path, "squares", wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["squares.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "squares.jsonl").read_text().splitlines()]
    assert [line["key"]["n"] for line in lines] == [1, 2]
    assert [line["result"] for line in lines] == [{"square": 1}, {"square": 4}]


def test_cells_of_other_tables_are_used_only_if_shared(tmp_path):
    wanted, runs = counted([4])
    cells.finish(tmp_path, "first", wanted)
    cells.finish(tmp_path, "second", wanted, shared_with=("first", "never run"))
    assert runs == {4: 1}
    cells.finish(tmp_path, "third", wanted)
    assert runs == {4: 2}


def test_a_tables_own_cell_is_used_before_a_shared_one_that_lacks_what_it_needs(tmp_path):
    """`shared_with` may name the table itself, and before others."""
    key, runs = {"dataset": "some", "n": 1, "seed": 0}, []
    cells.finish(tmp_path, "first", [cells.Cell(key, lambda: {"square": 1})])
    wanted = cells.Cell(key, lambda: runs.append(1) or {"square": 1, "bands": 2}, needs=("bands",))
    for _ in range(2):
        assert cells.finish(tmp_path, "second", [wanted], shared_with=("second", "first"))[0]["bands"] == 2
    assert len(runs) == 1


def test_cells_finished_before_an_interruption_are_stored(tmp_path):
    wanted, runs = counted([1, 2])

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.finish(tmp_path, "squares", [wanted[0], cells.Cell({"n": "stop"}, interrupted), wanted[1]])
    assert runs == {1: 1, 2: 0}
    cells.finish(tmp_path, "squares", wanted)
    assert runs == {1: 1, 2: 1}


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_an_interrupted_write_costs_only_its_own_cell(tmp_path, capsys, cut):
    wanted, runs = counted([1, 2, 3])
    right = cells.finish(tmp_path, "squares", wanted[:2])
    path = tmp_path / "squares.jsonl"
    content = path.read_bytes()
    path.write_bytes(content + b'{"key": {"dataset": "some", "n": 3'[:cut])
    rows = cells.finish(tmp_path, "squares", wanted)
    assert rows[:2] == right
    assert rows[2]["square"] == 9
    assert runs == {1: 1, 2: 1, 3: 1}
    assert path.read_bytes().startswith(content)
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 3
    assert not capsys.readouterr().err


def test_a_last_line_without_a_line_end_is_kept(tmp_path):
    wanted, runs = counted([1, 2])
    cells.finish(tmp_path, "squares", wanted[:1])
    path = tmp_path / "squares.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    cells.finish(tmp_path, "squares", wanted)
    cells.finish(tmp_path, "squares", wanted)
    assert runs == {1: 1, 2: 1}


@pytest.mark.parametrize(
    "damage",
    [b"{", b"\xff\xfe", b"[]", b"{}", b'{"key": 1}', b'{"key": {}, "result": 1, "seconds": 0}', b'"key"', b"null"],
)
def test_a_damaged_line_is_reported_and_its_cell_computed_again(tmp_path, capsys, damage):
    wanted, runs = counted([3, 4])
    right = cells.finish(tmp_path, "squares", wanted)
    path = tmp_path / "squares.jsonl"
    path.write_bytes(damage + b"\n" + path.read_bytes().splitlines(keepends=True)[1])
    assert cells.finish(tmp_path, "squares", wanted)[0]["square"] == right[0]["square"]
    assert runs == {3: 2, 4: 1}
    reported = " ".join(capsys.readouterr().err.split())
    assert "squares.jsonl, line 1 is damaged" in reported
    assert "computed again" in reported
    cells.finish(tmp_path, "squares", wanted)
    assert runs == {3: 2, 4: 1}


def test_keys_that_differ_in_anything_are_different_cells(tmp_path):
    keys = [{"dataset": "a b", "x": 1}, {"dataset": "a-b", "x": 1}, {"dataset": "a-b", "x": 1.5, "y": None}]
    cells.finish(tmp_path, "some", [cells.Cell(key, partial(dict, place=i)) for i, key in enumerate(keys)])
    again = cells.finish(tmp_path, "some", [cells.Cell(key, dict) for key in keys])
    assert [row["place"] for row in again] == [0, 1, 2]


def test_keys_with_tuples_and_in_another_order_are_the_same_cell(tmp_path):
    cells.finish(tmp_path, "some", [cells.Cell({"hidden": (16, 16), "seed": 0}, partial(dict, place=1))])
    (row,) = cells.finish(tmp_path, "some", [cells.Cell({"seed": 0, "hidden": [16, 16]}, dict)])
    assert row["place"] == 1
