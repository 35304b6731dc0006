"""`ensue serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli.options import Int8, KeyValueCacheType, NoVerify
from ensue.cli.output import print_line, warn
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls
from ensue.core.memory import share_arenas
from ensue.core.wording import counted

LOCAL = ("127.0.0.1", "localhost", "::1")
KEY_VARIABLE = "ENSUE_KEY"


def serve(
    runs: Annotated[
        list[Path] | None,
        Argument(
            metavar="RUN…",
            help="folders made by `ensue fit` or `ensue race`; without any, two small models are trained first",
        ),
    ] = None,
    host: Annotated[
        str, Option(help="address to listen on; an address other machines can reach needs --key")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="port to listen on; 0 picks a free one")] = 8000,
    key: Annotated[
        str | None, Option(help="key that clients must send, as Authorization: Bearer KEY", envvar=KEY_VARIABLE)
    ] = None,
    no_verify: NoVerify = False,
    int8: Int8 = False,
    kv_cache: KeyValueCacheType = "float32",
) -> None:
    """serve runs over HTTP

    Opens a web page, an OpenAI-compatible API under /v1 and an API for all other commands under /api.
    """
    from ensue.serve.keys import check_key

    key = os.environ.get(KEY_VARIABLE) if key is None else key  # typer takes an empty variable for none
    if key is not None:
        check_key(key)
    elif host not in LOCAL:
        raise InputError(f"other machines can reach {host}", hint="set a key with --key, or leave out --host")
    share_arenas()  # before torch starts threads
    from rich.console import Console

    from ensue.serve.server import listen, load_models

    folders = runs or _starter_runs()
    with Console(stderr=True).status(f"loading {counted(len(folders), 'folder')}"):
        registry = load_models(folders, int8=int8, kv_cache=kv_cache)
    for name, model in registry.models.items():
        for head in model.run.config.get("untrained", ()):
            warn(f"note: {name}: its {head} head is untrained, so its answers are random")
    with listen(registry, host=host, port=port, key=key) as server:
        print_line(f"serving {escape_controls(', '.join(registry.models))} on {server.address}; press Ctrl-C to stop")
        server.run()


def _starter_runs() -> list[Path]:
    """Train two small models, with a progress bar."""
    from ensue.cli.display import Display
    from ensue.verbs.starter_runs import FOLDER, starter_runs

    with Display() as display:
        display("note", {"text": f"no run given: training two small models in {FOLDER}, which takes about a minute"})
        return starter_runs(report=display)
