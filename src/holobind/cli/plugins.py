"""Verbs of other packages: each entry point in the group `holobind.verbs` is a `typer.Typer` under its name.

A plug-in that cannot be loaded never breaks another verb. The help then says so in one line, and its own verb exits
with 2.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import typer

from holobind.errors import HolobindError

GROUP = "holobind.verbs"
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_plugins(app: typer.Typer, plugins: Iterable[EntryPoint] | None = None) -> None:
    """Add the verbs of all installed plug-ins to the command line."""
    for plugin in entry_points(group=GROUP) if plugins is None else plugins:
        try:
            verbs = plugin.load()
            if not isinstance(verbs, typer.Typer):
                raise TypeError(f"{plugin.value} is a {type(verbs).__name__}, not a typer.Typer")
        except Exception as error:  # whatever a plug-in raises, the other verbs must work
            _add_broken(app, plugin, error)
        else:
            app.add_typer(verbs, name=plugin.name)


def _add_broken(app: typer.Typer, plugin: EntryPoint, error: Exception) -> None:
    from rich.markup import escape

    reason = f"the plug-in {plugin.name} ({plugin.value}) cannot be loaded: {type(error).__name__}: {error}"

    def broken() -> None:
        raise HolobindError(f"{reason}; install it again, or uninstall it")

    app.command(
        plugin.name,
        help=escape(" ".join(f"Not available: {reason}".split())),
        context_settings=ANY_ARGUMENTS,
        add_help_option=False,  # `holobind NAME --help` gives the reason, too
    )(broken)
