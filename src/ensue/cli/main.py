"""The words people type: each command parses, calls its verb and prints. Nothing heavy is imported before that."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from ensue.cli import asking, inspecting, training
from ensue.cli.output import say
from ensue.core.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, race, open up and serve sequence models, from n-grams to GPT, on the machine you have.",
)
app.command()(training.fit)
app.command()(asking.score)
app.command()(asking.generate)
app.command("next")(asking.next_)
app.command()(training.race)
for command in (inspecting.systems, inspecting.check, inspecting.doctor, inspecting.cost, inspecting.convert):
    app.command()(command)
app.command()(inspecting.look)


def version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        from ensue import __version__

        say(f"ensue {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version_: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Options that stand before a command; --debug may stand anywhere."""


def fail(text: str, code: int) -> NoReturn:
    """One line on standard error, and an exit code."""
    sys.stderr.write(f"{text}\n")
    raise SystemExit(code)


def main() -> None:
    """Run the command; an error is one line, unless --debug asks for all of it."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        app()
    except InputError as error:
        if debug:
            raise
        fail(f"ensue: {error}", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        if debug:
            raise
        fail(f"ensue: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    except Exception as error:
        if type(error).__name__ == "Interrupted":
            fail(f"\nensue: {error}", 130)
        raise
