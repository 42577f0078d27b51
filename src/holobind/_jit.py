"""The decorator of all compiled kernels. Importing this module imports numba.

numba keeps compiled code in `$NUMBA_CACHE_DIR`, beside the source, or in the user's directory for caches. Where none of
them can be written, or a file of the cache is damaged, the code is compiled in memory: a cache never causes an error.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, config

_warned = False


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function to code that releases the GIL; the options are those of `numba.njit`."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        if _has_user_cache():
            try:
                dispatcher._cache = _SafeCache(function)
            except (RuntimeError, OSError) as error:  # numba found no directory that it can write
                _warn_once(error)
        else:
            _warn_once("there is no home directory")
        return dispatcher

    return decorate


class _SafeCache(caching.FunctionCache):
    """numba's cache of one function, in which no failure to read or to write is an error."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # whatever unpickling a damaged file raises
            try:
                self.flush()  # so that the result of compiling again can be saved
            except OSError:
                self.disable()
                _warn_once(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, or a directory that is read-only by now
            _warn_once(error)
            self.disable()


def _has_user_cache() -> bool:
    """Whether a directory for caches is known: without one, numba would make a directory named `~` where it runs."""
    if getattr(config, "CACHE_DIR", "") or os.environ.get("XDG_CACHE_HOME"):
        return True
    try:
        return Path.home().is_absolute()
    except RuntimeError:  # no $HOME, and no entry of this user in the system's list
        return False


def _warn_once(reason: object) -> None:
    global _warned  # noqa: PLW0603
    if not _warned:
        _warned = True
        message = " ".join(str(reason).split())[:200] or type(reason).__name__
        logging.getLogger("holobind").warning(
            "holobind: compiled code is not cached, so every start takes some seconds longer (%s); "
            "NUMBA_CACHE_DIR can name a directory for it",
            message,
        )
