"""Lines of a stream: as Python splits them, whatever the sizes of the chunks; within a limit; in UTF-8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holobind.data import files
from holobind.data.tables.lines import Lines
from holobind.errors import DataError


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30), st.integers(1, 9), st.integers(0, 4)
)
def test_lines_do_not_depend_on_the_sizes_of_chunks(text, size, n_peeked):
    data = text.encode()
    lines = Lines((data[i : i + size] for i in range(0, len(data), size)), "t")
    expected = text.removeprefix("\ufeff") if size >= 3 else text
    if text.startswith("\ufeff") and size < 3:
        return
    wanted = expected.removesuffix("\n").split("\n") if expected else []
    assert lines.peek(n_peeked) == wanted[:n_peeked]
    assert list(lines) == list(enumerate(wanted, 1))


def test_a_line_is_ready_as_soon_as_it_has_arrived():
    read = []

    def chunks():
        for chunk in (b"a\nb", b"c\n", b"d\n"):
            read.append(chunk)
            yield chunk

    lines = Lines(chunks(), "t")
    assert next(lines) == (1, "a") and lines.waiting and len(read) == 1
    assert next(lines) == (2, "bc") and len(read) == 2


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([b"ok\n\xe9t\xe9\n"], r"t:2: not UTF-8 text .*iconv -f latin1"),
        ([b"\xff\xfea\0"], "t: UTF-16 text; save it as UTF-8"),
        ([b"ok\n", b"x" * 60, b"y" * 60], "t:2: the line has more than 100 bytes"),
        ([b"ok\n" + b"x" * 120 + b"\n"], "t:2: the line has more than 100 bytes"),
    ],
)
def test_what_is_no_line_of_text_is_refused(monkeypatch, chunks, message):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100)
    with pytest.raises(DataError, match=message):
        list(Lines(chunks, "t"))
