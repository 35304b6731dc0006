"""`ensue serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.output import say
from ensue.core.errors import InputError
from ensue.core.wording import counted

LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN…",
            help="Folders that `ensue fit` or `ensue race` made; without one two small models are trained.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine's own want --key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    key: Annotated[
        str, typer.Option(help="What clients must know: Authorization: Bearer KEY.", envvar="ENSUE_KEY")
    ] = "",
    int8: Annotated[bool, typer.Option("--int8", help="Linear layers compute in eight bits: smaller, faster.")] = False,
) -> None:
    """Serve runs over HTTP: a page for people, OpenAI's API and our own for programs."""
    if host not in LOCAL and not key:
        raise InputError(f"{host} can be reached by others", hint="give them a key with --key, or leave out --host")
    from rich.console import Console

    from ensue.serve.server import listen, open_hall

    found = runs or _first()
    with Console(stderr=True).status(f"opening {counted(len(found), 'folder')}"):  # on a terminal, until it is done
        hall = open_hall(found, int8=int8)
    with listen(hall, host=host, port=port, key=key) as server:
        say(f"{', '.join(hall.served)} on {server.address}; Ctrl-C ends it")
        server.run()


def _first() -> list[Path]:
    """Two small models, with a bar while they are trained."""
    from ensue.cli.display import Display
    from ensue.verbs.starter_runs import FOLDER, first_runs

    with Display() as display:
        display("note", {"text": f"no run is named: two small models are trained in about a minute, in {FOLDER}"})
        return first_runs(report=display)
