"""The `ensue` command: each subcommand parses its arguments, calls its verb, which it imports then, and prints."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from ensue.cli import chat, cost, evaluate, inspect, label, language, race, serve, train, translate, words
from ensue.cli.output import INTERRUPTED, print_line, warn
from ensue.core import compile_notice, torchrun
from ensue.core.errors import InputError, Interrupted, InvalidDistribution, OtherRankFailed, RankError
from ensue.core.notes import NOTES
from ensue.core.verification import VERIFY

Usage: Any = typer.BadParameter.__mro__[1]
"""typer's base class for errors in arguments."""

STOPPED = "stopped; no partial output was left behind"
DISTRIBUTED = ("fit", "distil")
"""Commands that can run under torchrun."""
SILENT_RANK_DELAY = 10.0
"""Seconds that a rank waits before it exits silently."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="train, compare, inspect and serve sequence models, from n-grams to BERT and GPT",
)
COMMANDS: dict[str, Callable[..., None]] = {
    "fit": train.fit,
    "distil": train.distil,
    "race": race.race,
    "get": chat.get,
    "chat": chat.chat,
    "score": language.score,
    "generate": language.generate,
    "next": language.next_,
    "eval": evaluate.evaluate,
    "translate": translate.translate,
    "predict": label.predict,
    "embed": label.embed,
    "fill": label.fill,
    "look": inspect.look,
    "serve": serve.serve,
    "cost": cost.cost,
    "convert": inspect.convert,
    "systems": inspect.systems,
    "check": inspect.check,
    "doctor": inspect.doctor,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(words.app, name="words")


def version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from ensue import __version__

        print_line(f"ensue {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version_: Annotated[
        bool, Option("--version", callback=version, is_eager=True, help="print the version and exit")
    ] = False,
    debug: Annotated[bool, Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Options before a command; --debug is accepted anywhere."""
    command = context.invoked_subcommand
    if torchrun.world_size() > 1 and command not in DISTRIBUTED:
        raise InputError(f"`ensue {command}` runs in one process", hint="run it without torchrun")


def fail(text: str, code: int, keep: str = "") -> NoReturn:
    """Print a line to standard error, with control characters escaped except those in ``keep``, and exit."""
    warn(text, keep)
    raise SystemExit(code)


def exit_silently(error: Exception) -> NoReturn:
    """Exit a rank without a message.

    It waits first: torchrun kills all ranks as soon as one exits, and rank 0 may not have printed the error yet.
    """
    stopped = isinstance(error, Interrupted | typer.Abort)  # a signal, which all ranks get at the same time
    time.sleep(1.0 if stopped else SILENT_RANK_DELAY)
    raise SystemExit(INTERRUPTED if stopped else 2)


def open_closed_streams() -> None:
    """Open the null device in place of a closed standard input or output."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


class NotePrinter(logging.Handler):
    """Prints notes to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a note."""
        warn(f"note: {record.getMessage()}")


@contextmanager
def printed_notes(quiet: bool) -> Iterator[None]:
    """Print the notes of ``ensue.core.notes`` while a command runs, or nothing if ``quiet``."""
    handler = logging.NullHandler() if quiet else NotePrinter()
    NOTES.addHandler(handler)
    try:
        yield
    finally:
        NOTES.removeHandler(handler)


def main() -> None:
    """Run the command; print errors as one line, or with --debug as a traceback."""
    open_closed_streams()
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without █ gets a ?
    if sys.stderr is not None and sys.stderr.isatty() and not torchrun.rank():
        compile_notice.set_printer(warn)
    verify = os.environ.get(VERIFY)
    try:
        with printed_notes(quiet="--json" in sys.argv or torchrun.rank() > 0):
            code = app(prog_name="ensue", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        explain(error)
    finally:  # --no-verify is for one command
        os.environ.pop(VERIFY, None)
        os.environ |= {} if verify is None else {VERIFY: verify}
    if code == INTERRUPTED and not torchrun.rank():  # Ctrl-C with nothing to save
        fail(f"\nensue: {STOPPED}", INTERRUPTED, keep="\n")
    raise SystemExit(code if isinstance(code, int) else 0)


def explain(error: Exception) -> NoReturn:
    """Print a known error as one line and exit; raise an unknown one, which is a bug.

    Under torchrun rank 0 prints it, unless only another rank knows of it.
    """
    known = isinstance(error, InputError | Usage | Interrupted | typer.Abort) and not isinstance(error, RankError)
    if isinstance(error, OtherRankFailed) or (known and torchrun.rank()):
        exit_silently(error)
    if isinstance(error, InputError | InvalidDistribution):
        fail(f"ensue: {error}", 2)
    if isinstance(error, Usage):
        if not error.format_message().strip():  # no command: print the help
            fail(error.ctx.get_help() if error.ctx else "", 2, keep="\n")
        path = error.ctx.command_path if error.ctx else "ensue"
        fail(f"ensue: {error.format_message().rstrip('.')}; see `{path} --help`", 2)
    if isinstance(error, typer.Abort):
        fail(f"ensue: {STOPPED}", INTERRUPTED)
    if isinstance(error, Interrupted):
        fail(f"\nensue: {error}", INTERRUPTED, keep="\n")
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1)
    if isinstance(error, MemoryError):
        fail("ensue: there is not enough memory for this", 2)
    if isinstance(error, OverflowError):
        fail(f"ensue: a number is too large ({error})", 2)
    if isinstance(error, OSError):
        fail(f"ensue: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    raise error
