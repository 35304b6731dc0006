"""The words people type: each command parses, calls its verb and prints. Nothing heavy is imported before that."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Annotated, Any, NoReturn

import typer

from ensue.cli import cost as costing
from ensue.cli import inspect as inspecting
from ensue.cli import label as labelling
from ensue.cli import language as asking
from ensue.cli import serve as serving
from ensue.cli import train as training
from ensue.cli import translate as translating
from ensue.cli import wordnet as meanings
from ensue.cli import words
from ensue.cli.output import say
from ensue.core import compile_notice as compiling
from ensue.core import torchrun as launch
from ensue.core.errors import InputError, Interrupted, Lost, NoDistribution, OwnError

Usage: Any = typer.BadParameter.__mro__[1]
"""What typer raises when a command is not typed as it should be."""

INTERRUPTED = 130
"""The exit code of what was stopped with Ctrl-C."""
STOPPED = "stopped; nothing was left half done"
TRAINERS = ("fit", "distil")
"""The commands that several processes can do together."""
LINGER = 10.0
"""Seconds after which a rank that says nothing ends."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, race and open up sequence models, from n-grams to BERT and GPT, on the machine you have.",
)
app.command()(training.fit)
app.command()(training.distil)
app.command()(asking.score)
app.command()(asking.generate)
app.command("next")(asking.next_)
app.command()(translating.translate)
app.command()(labelling.predict)
app.command()(labelling.embed)
app.command()(labelling.fill)
app.command()(training.race)
for command in (inspecting.systems, inspecting.check, inspecting.doctor, costing.cost, inspecting.convert):
    app.command()(command)
app.command()(inspecting.look)
app.command()(serving.serve)
words.app.command()(meanings.wordnet)
words.app.command()(meanings.context)
app.add_typer(words.app, name="words")


def version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        from ensue import __version__

        say(f"ensue {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version_: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Options that stand before a command; --debug may stand anywhere."""
    command = context.invoked_subcommand
    if launch.count() > 1 and command not in TRAINERS:
        raise InputError(f"`ensue {command}` is for one process", hint="run it without torchrun")


def warn(text: str) -> None:
    """A line on standard error, where there is one: who closed it wants none."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")


def fail(text: str, code: int) -> NoReturn:
    """One line on standard error, and an exit code."""
    warn(text)
    raise SystemExit(code)


def keep_silent(error: Exception) -> NoReturn:
    """End one of several ranks without a word.

    It takes its time: torchrun ends all ranks as soon as one has ended, and the first may not have said why yet.
    """
    stopped = isinstance(error, Interrupted | typer.Abort)  # which all ranks are at the same time
    time.sleep(1.0 if stopped else LINGER)
    raise SystemExit(130 if stopped else 2)


def main() -> None:
    """Run the command; an error is one line, unless --debug asks for all of it."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no █ gets a ?
    if sys.stderr is not None and sys.stderr.isatty() and not launch.rank():  # where somebody waits
        compiling.tell(warn)
    try:
        code = app(prog_name="ensue", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        explain(error)
    if code == INTERRUPTED and not launch.rank():  # Ctrl-C where there was nothing to save
        fail(f"\nensue: {STOPPED}", INTERRUPTED)
    raise SystemExit(code if isinstance(code, int) else 0)


def explain(error: Exception) -> NoReturn:
    """Say in one line what went wrong, where that can be said; other errors are ours, and show where they come from.

    Of several ranks the first says it, unless only another one knows.
    """
    known = isinstance(error, InputError | Usage | Interrupted | typer.Abort) and not isinstance(error, OwnError)
    if isinstance(error, Lost) or (known and launch.rank()):
        keep_silent(error)
    if isinstance(error, InputError | NoDistribution):
        fail(f"ensue: {error}", 2)
    if isinstance(error, Usage):
        if not error.format_message().strip():  # no command at all: the help has been asked for
            fail(error.ctx.get_help() if error.ctx else "", 2)
        place = error.ctx.command_path if error.ctx else "ensue"
        fail(f"ensue: {error.format_message().rstrip('.')}; see `{place} --help`", 2)
    if isinstance(error, typer.Abort):
        fail(f"ensue: {STOPPED}", INTERRUPTED)
    if isinstance(error, Interrupted):
        fail(f"\nensue: {error}", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1)
    if isinstance(error, MemoryError):
        fail("ensue: there is not enough memory for this", 2)
    if isinstance(error, OSError):
        fail(f"ensue: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    raise error
