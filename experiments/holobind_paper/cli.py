"""`holobind paper NAME`: every figure and table of the paper by one command."""

import typer

app = typer.Typer(help="Redo a figure or table of the paper.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Redo a figure or table of the paper."""
