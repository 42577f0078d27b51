"""`holobind restrict`: labels that a model may not predict, for good."""

from pathlib import Path
from typing import Annotated

import typer

from holobind.cli.arguments import Json, ModelFile
from holobind.cli.label_options import Exclude, Only, read_labels
from holobind.cli.terminal import claim_outputs, print_json, print_rich
from holobind.errors import OptionError

app = typer.Typer()


@app.command()
def restrict(
    model: ModelFile,
    exclude: Exclude = None,
    only: Only = None,
    every: Annotated[bool, typer.Option("--all", help="Allow all labels again.")] = False,
    out: Annotated[Path | None, typer.Option(help="File of the model.  \\[default: MODEL itself]")] = None,
    as_json: Json = False,
) -> None:
    """Set which labels a model may predict, for good.

    The labels are kept in the file and in its scores; they are left out of
    predictions. A new call replaces what an earlier one set. For one request,
    `predict` has the same options.

    Examples:

        holobind restrict model.safetensors --exclude misc --exclude "to do"

        holobind restrict model.safetensors --only @subjects.txt --out small.safetensors

        holobind restrict model.safetensors --all
    """
    import holobind as hb

    excluded, allowed = read_labels(exclude), read_labels(only)
    if every and (excluded or allowed):
        raise OptionError("--all allows all labels again: give it without --exclude and --only")
    if not (every or excluded or allowed):
        raise OptionError("give --exclude or --only with labels, or --all to allow all labels again")
    path = out or model
    with claim_outputs({"--out": path}, [model] if out is not None else []):
        loaded = hb.load(model)
        loaded.restrict(exclude=excluded or (), only=allowed)
        loaded.save(path)
    n_allowed = loaded.n_labels if loaded.allowed is None else int(loaded.allowed.sum())
    if as_json:
        print_json({"path": str(path), "labels": loaded.n_labels, "allowed": n_allowed})
    else:
        print_rich(f"{path}: {n_allowed:,} of {loaded.n_labels:,} labels may be predicted")
