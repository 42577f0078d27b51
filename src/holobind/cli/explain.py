"""`holobind explain`: which words and which training rows made a label's score."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind import _html as html
from holobind._checks import printable
from holobind._files import atomic_write, write_errors
from holobind.cli.arguments import EncoderPlace, Json, ModelFile
from holobind.cli.label_options import read_labels
from holobind.cli.terminal import claim_outputs, print_json, print_rich
from holobind.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from holobind.explanation import Explanation, Part
    from holobind.model import Model

app = typer.Typer()

BAR_CELLS = 14  # of the longest bar in a terminal, in characters
MAX_NAME_CHARACTERS = 100
MAX_TEXT_BYTES = 1 << 20


@app.command()
def explain(
    model: ModelFile,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text, a sparse row like 12:0.5 40:1, or - for stdin.")],
    label: Annotated[
        list[str] | None,
        typer.Option(help="Label to explain; repeat it for several.  \\[default: the best]", show_default=False),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Explain the k best labels.")] = 1,
    parts: Annotated[int, typer.Option(min=1, help="Number of parts shown; the rest is summed.")] = 12,
    out: Annotated[Path | None, typer.Option("--html", help="Page with the words marked.")] = None,
    encoder: EncoderPlace = None,
    as_json: Json = False,
) -> None:
    """Show which words and which training rows made a label's score.

    The parts add up to the score: what each word adds, what each of the
    nearest training rows adds, and the bias. This is exact for the default
    model; for trained networks it is gradient x input, and says so.

    Examples:

        holobind explain model.safetensors "how to roast a frozen turkey"

        holobind explain model.safetensors "how to roast a turkey" --label oven

        holobind explain model.safetensors "12:0.5 40:1" -k 3 --json

        holobind explain model.safetensors - --html reasons.html < text.txt
    """
    import holobind as hb

    with claim_outputs({"--html": out}, [model]):
        loaded = hb.load(model, encoder=encoder)
        inputs = _inputs(loaded, text)
        found = loaded.explain(inputs, read_labels(label), k)
        if loaded.examples(inputs).empty_rows().any():
            typer.echo("note: the model knows no word or feature of it: scores are those of any such text", err=True)
        if out is not None:
            with write_errors(out), atomic_write(out, "w") as file:
                file.write(to_html(found))
    if as_json:
        print_json([each.as_json() for each in found])
        return
    for each in found:
        print_rich(_headline(each))
        print_rich(_table(each, parts))


def _inputs(model: "Model", text: str) -> Any:
    """The text, or the row of features, as the model takes it."""
    from holobind.cli.stream import detect_format
    from holobind.data.sparse_text import parse_features

    if text == "-":
        content = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise DataError(f"stdin: a text to explain has at most {MAX_TEXT_BYTES:,} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"stdin: the text is not UTF-8 ({error.reason})") from error
    line = " ".join(text.split()).encode("utf-8", "replace")
    if detect_format(model, line) == "text" or model.network.n_features is None:
        return [text]
    return parse_features([line], model.network.n_features, "TEXT")


def _headline(found: "Explanation") -> str:
    probability = "" if found.probability is None else f", probability {found.probability:.1%}"
    label = printable(str(found.label), MAX_NAME_CHARACTERS)
    return f"{label}: rank {found.rank}, score {found.score:.4f}{probability}"


def _shown(found: "Explanation", n: int) -> "tuple[list[Part], list[Part]]":
    """The parts to show, and those to sum up: bias and rest are always shown."""
    last = [part for part in found.parts if part.kind in ("bias", "rest")]
    others = [part for part in found.parts if part.kind not in ("bias", "rest")]
    return [*others[:n], *last], others[n:]


def _table(found: "Explanation", n: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    shown, summed = _shown(found, n)
    longest = max((abs(part.value) for part in shown), default=0.0) or 1.0
    table = Table("adds", "", "part", "", box=None, pad_edge=False, caption=_footer(found), caption_justify="left")
    for part in shown:
        cells = round(BAR_CELLS * abs(part.value) / longest)
        bar = Text("█" * cells, "blue") if part.value >= 0 else Text("░" * cells, "red")
        table.add_row(f"{part.value:+.4f}", bar, _cell(part.name), _cell(_details(part)))
    if summed:
        table.add_row(f"{sum(part.value for part in summed):+.4f}", "", f"{len(summed)} smaller parts", "")
    table.add_row(f"{found.score:.4f}", "", "score", "", style="bold")
    return table


def _footer(found: "Explanation") -> str:
    return f"{found.method}; rounding {found.rounding:.1g}"


def _cell(text: str) -> "Text":
    from rich.text import Text

    return Text(printable(text, MAX_NAME_CHARACTERS))


def _details(part: "Part") -> str:
    if part.kind == "feature":
        return "" if part.name == f"feature {part.details['feature']}" else "word"
    if part.kind == "label text":
        words, related = (", ".join(map(str, part.details[name])) for name in ("words", "related labels"))
        shared = f"in common: {words}" if words else "no word in common"
        return f"{shared}; like {related}" if related else shared
    if part.kind != "training row":
        return "" if part.kind == part.name else part.kind
    labels = ", ".join(map(str, part.details["labels"])) or "no labels"
    has = "has the label" if part.details["has label"] else "lacks the label"
    return f"training row that {has}: {labels}; in common: {' '.join(part.details['in common'])}"


def to_html(found: "Sequence[Explanation]") -> str:
    """A page of explanations, with the words of the text marked."""
    title = "Why " + ", ".join(str(each.label) for each in found)[:80]
    body = [html.tag("h1", title)]
    for each in found:
        numbers = [(f"{each.score:.4f}", "score"), (f"{each.rank:,}", "rank")]
        if each.probability is not None:
            numbers.append((f"{each.probability:.1%}", "probability"))
        names = {"feature": "words or features", "token": "tokens", "training row": "training rows", "trees": "trees"}
        kinds = dict.fromkeys(part.kind for part in each.parts)
        numbers += [(f"{each.total(kind):+.4f}", names.get(kind, kind)) for kind in kinds]
        longest = max((abs(part.value) for part in each.parts), default=0.0)
        body += [html.tag("h2", each.label), html.figures(numbers)]
        if each.text is not None:
            body += [
                html.marked_text(each.marked_words()),
                html.tag("p", "Blue adds to the score, red takes from it.", "note"),
            ]
        rows = [(f"{p.value:+.4f}", html.bar(p.value, longest), p.name, _details(p)) for p in each.parts]
        body += [html.table(("#adds", "", "part", ""), rows), html.tag("p", _footer(each), "note")]
    return html.page(title, body)
