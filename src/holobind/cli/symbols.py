"""`holobind ask`: query a symbolic statement."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holobind.errors import ExpressionError

app = typer.Typer()


@app.command()
def ask(
    statement: Annotated[
        str | None, typer.Argument(help="Such as 'red*cat + blue*dog'; without it, an interactive session.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option("--query", "-q", help="A key to unbind; can be repeated.")] = None,
    has: Annotated[
        list[str] | None, typer.Option(help="A part to look for, such as 'red*cat'; can be repeated.")
    ] = None,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the vectors.")] = 512,
    seed: Annotated[int, typer.Option(help="Random seed of the vectors.")] = 0,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of candidates to print.")] = 5,
    vocabulary: Annotated[Path | None, typer.Option(help="A saved vocabulary; it replaces --dim and --seed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each answer.")] = False,
) -> None:
    """Encode a statement as one vector and query it.

    Examples:

      holobind ask "red*cat + blue*dog" --query red

      holobind ask "first*(name*Jane + age*30) + second*(name*Joe + age*33)" --query "first*name"

      holobind ask                            an interactive session; type help
    """
    from holobind.symbols.repl import Session
    from holobind.symbols.vocabulary import Vocabulary

    session = Session(Vocabulary.load(vocabulary) if vocabulary else Vocabulary(dim, seed), k, as_json)
    if statement is not None:
        summary = session.set_statement(statement)
        if not query and not has:
            typer.echo(summary)
    for key in query or ():
        typer.echo(session.ask(key))
    for part in has or ():
        typer.echo(session.has(part))
    if query or has:
        return
    typer.echo("End a query with ?; help lists all commands, quit ends the session.", err=True)
    while (line := _read_line("> ")) is not None and (reply := session.reply(line)) is not None:
        typer.echo(reply)


def _read_line(prompt: str) -> str | None:
    """The next line of standard input, None at its end. The prompt is printed on a terminal only."""
    from holobind.symbols.expression import MAX_CHARACTERS

    if sys.stdin.isatty():
        try:
            return input(prompt)
        except EOFError:
            return None
    line = sys.stdin.readline(MAX_CHARACTERS + 1)
    if len(line) > MAX_CHARACTERS:
        raise ExpressionError(f"a line of standard input has more than {MAX_CHARACTERS:,} characters; divide it")
    return line or None
