"""Loops are compiled when a machine first needs them, which takes seconds, and are kept: who waits for it is told."""

from __future__ import annotations

from collections.abc import Callable

SAID = "compiling loops for this processor, which takes some seconds; it is done once"

_say: Callable[[str], None] | None = None


def tell(say: Callable[[str], None]) -> None:
    """Have ``say`` called when this process first compiles something."""
    global _say  # noqa: PLW0603 - modules that compile do so where they are imported, and nobody can hand them anything
    _say = say


def watch() -> None:
    """Called by a module that compiles, before it does; it has numba already, which others would wait for."""
    if _say is None:
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        """Hears what is not on disk yet."""

        def on_start(self, begun: object) -> None:
            """It is said once."""
            global _say
            if _say is not None:
                say, _say = _say, None
                say(SAID)

        def on_end(self, ended: object) -> None:
            """Nothing: what follows shows that it is done."""

    event.register("numba:compile", Listener())
