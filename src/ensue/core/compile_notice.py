"""On a terminal, print one line when numba compiles kernels; they are cached on disk afterwards."""

from __future__ import annotations

from collections.abc import Callable

NOTICE = "compiling kernels for this processor; this takes some seconds, once"

_print: Callable[[str], None] | None = None


def set_printer(printer: Callable[[str], None]) -> None:
    """Call ``printer`` with a notice when this process first compiles something."""
    global _print  # noqa: PLW0603 - modules compile on import, so it cannot be passed to them
    _print = printer


def watch() -> None:
    """Listen for compilation; called by modules that compile, which have imported numba already."""
    if _print is None:
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        """Prints the notice at the first compilation that is not in the cache."""

        def on_start(self, begun: object) -> None:
            """Print the notice once."""
            global _print
            if _print is not None:
                printer, _print = _print, None
                printer(NOTICE)

        def on_end(self, ended: object) -> None:
            """Required by numba; prints nothing."""

    event.register("numba:compile", Listener())
