"""Web pages that open without a network: one file, no scripts, no links, every text escaped."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light; --ink: #1c2733; --soft: #5d6b7a; --line: #dde3ea;
        --for: 31, 119, 180; --against: 214, 69, 65 }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink); margin: 0 auto;
       max-width: 62rem; padding: 2rem 1.25rem 4rem; background: #fff }
h1 { font-size: 1.5rem; margin: 0 0 .25rem } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem }
p.note, td.note, .note { color: var(--soft) }
table { border-collapse: collapse; width: 100%; font-size: .92rem }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line) }
th, td { padding: .28rem .6rem .28rem 0; vertical-align: top; overflow-wrap: break-word; max-width: 34rem }
td { border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.bar { position: relative; height: .9rem; min-width: 9rem; margin-top: .25rem; background:
       linear-gradient(var(--line), var(--line)) center/1px 100% no-repeat }
.bar i { position: absolute; top: 0; bottom: 0; border-radius: 2px }
.text { font-size: 1.05rem; line-height: 1.9; padding: .9rem 1.1rem; border: 1px solid var(--line); border-radius: 6px;
        white-space: pre-wrap; overflow-wrap: anywhere }
.text mark { color: inherit; border-radius: 3px; padding: .1em .05em }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 }
.figures div { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; min-width: 7.5rem }
.figures b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums }
.figures span { color: var(--soft); font-size: .85rem }
img { max-width: 100%; height: auto }
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page; `body` is HTML, and the title a text."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n"
    )
    return head + "\n".join(body) + "\n</body></html>\n"


def tag(name: str, text: object, css: str = "") -> str:
    """An element with a text, escaped."""
    attribute = f' class="{escape(css)}"' if css else ""
    return f"<{name}{attribute}>{escape(str(text))}</{name}>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table. A column whose name starts with # has numbers; a cell of type `Html` is HTML, any other one a text."""
    numeric = [name.startswith("#") for name in columns]
    css = ["number" if is_number else "" for is_number in numeric]
    head = "".join(tag("th", name.lstrip("#"), c) for name, c in zip(columns, css, strict=True))
    lines = [f"<table><thead><tr>{head}</tr></thead><tbody>"]
    for row in rows:
        cells = (
            f'<td class="{c}">{cell}</td>' if isinstance(cell, Html) else tag("td", cell, c)
            for cell, c in zip(row, css, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table>"])


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def bar(value: float, longest: float) -> Html:
    """A bar from the middle to the right for a positive value, to the left for a negative one."""
    width = 50 * min(abs(value) / longest, 1.0) if longest else 0.0
    side, colour = ("left", "--for") if value >= 0 else ("right", "--against")
    return Html(f'<div class="bar"><i style="{side}:50%;width:{width:.2f}%;background:rgb(var({colour}))"></i></div>')


def png(content: bytes, what: str) -> str:
    """An image, as part of the page."""
    return f'<p><img alt="{escape(what)}" src="data:image/png;base64,{base64.b64encode(content).decode()}"></p>'


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Large numbers side by side: (number, what it is)."""
    boxes = (f"<div>{tag('b', n)}{tag('span', what)}</div>" for n, what in values)
    return f'<div class="figures">{"".join(boxes)}</div>'


def marked_text(pieces: Iterable[tuple[str, float]]) -> str:
    """A text whose pieces have a background: blue for positive values, red for negative ones."""
    pieces = list(pieces)
    longest = max((abs(value) for _, value in pieces), default=0.0)
    out = []
    for text, value in pieces:
        strength = abs(value) / longest if longest else 0.0
        if strength < 0.02:
            out.append(escape(text))
            continue
        colour = "--for" if value > 0 else "--against"
        style = f"background:rgba(var({colour}),{0.08 + 0.6 * strength:.2f})"
        out.append(f'<mark style="{style}" title="{value:+.4f}">{escape(text)}</mark>')
    return f'<div class="text">{"".join(out)}</div>'
