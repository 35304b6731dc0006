"""`ensue serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.output import say
from ensue.core.errors import InputError

LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN…", help="Folders that `ensue fit` made.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine's own want --key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    key: Annotated[
        str, typer.Option(help="What clients must know: Authorization: Bearer KEY.", envvar="ENSUE_KEY")
    ] = "",
) -> None:
    """Serve runs over HTTP, as OpenAI's API and our own."""
    if not runs:
        raise InputError("serve which runs?", mend="name one or more: ensue serve runs/lstm runs/ende")
    if host not in LOCAL and not key:
        raise InputError(f"{host} can be reached by others", mend="give them a key with --key, or leave out --host")
    from ensue.serve.running import listen, open_runs

    served = open_runs(runs)
    with listen(served, host=host, port=port, key=key) as server:
        say(f"{', '.join(served)} on {server.address}; Ctrl-C ends it")
        server.run()
