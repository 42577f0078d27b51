"""`holobind warm`: compile before the first prediction."""

from typing import Annotated

import typer

from holobind.cli.arguments import Json, Quiet
from holobind.cli.terminal import print_json, print_rich, progress

app = typer.Typer()


@app.command()
def warm(
    training: Annotated[
        bool, typer.Option("--training", help="Also the kernels of networks that are trained by gradient descent.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compile the kernels, so that the first prediction need not wait for it.

    Parts of the solver, of the search for neighbours, of the trees, of the
    ranking and of the reader of files are compiled for this processor when
    they are first called, and kept in a cache: $NUMBA_CACHE_DIR, or beside
    the source, or in the user's directory for caches. Run this in the image
    of a container, on a processor like the one that will predict.

    Examples:

        holobind warm

        RUN pip install holobind && holobind warm
    """
    from holobind.warm import warm as compile_all

    with progress() as report:
        found = compile_all(training=training, on_progress=report)
    where = str(found.directory) if found.directory else None
    if as_json:
        names = {"compiled": found.compiled, "cached": found.cached}
        print_json({**names, "directory": where, "seconds": round(found.seconds, 2)})
        return
    kept = f"kept in {where} and the directories beside it" if where else "not kept: no directory can be written"
    print_rich(
        f"compiled {len(found.compiled)} functions in {found.seconds:.1f} s, {kept}; "
        f"{len(found.cached)} were compiled before"
    )
    for name in sorted(found.compiled):
        print_rich(f"  {name}")
