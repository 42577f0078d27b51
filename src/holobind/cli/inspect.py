"""`holobind inspect`: what a model file holds."""

import typer

from holobind.cli.arguments import Json, ModelFile
from holobind.cli.terminal import print_json, print_rich

app = typer.Typer()


@app.command()
def inspect(model: ModelFile, as_json: Json = False) -> None:
    """Show what a model is, how large it is and how it was trained.

    Numbers of parameters are compared with those of a linear output layer.

    Examples:

        holobind inspect model.safetensors

        holobind inspect model.safetensors --json
    """
    import holobind as hb
    from holobind.cli.describe import description, table

    described = {"path": str(model), **description(hb.load(model)), "bytes": model.stat().st_size}
    if as_json:
        print_json(described)
    else:
        print_rich(table(described))
