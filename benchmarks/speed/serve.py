"""Clients of one model: tokens a second at 1, 2, 4 and 8 at once against one after the other, and against transformers.

python -m benchmarks.speed.serve [--tokens 64] [--rounds 3]

A ``gpt`` of 6 layers, width 384, with random weights (what is written does not matter for speed) is served by ``ensue
serve`` in a process of its own; every client asks for so many tokens, greedily. The peer is transformers' GPT-2 of the
same size behind FastAPI, whose ``generate`` answers one request at a time, as its users have it. Reported are tokens a
second over all clients, and the ratio to one client who asks the same requests one after the other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

import ensue
from benchmarks.record import record

LAYERS, WIDTH, HEADS, CONTEXT = 6, 384, 6, 256
PROMPTS = [f"The number {n} is returned where the argument" for n in range(8)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "gpt"
        settings = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "context": CONTEXT, "train.steps": 1}
        run = ensue.fit("gpt", "pydoc", out=folder, settings={**settings, "tokenizer.vocabulary": 8000})
        command = [sys.executable, "-m", "ensue", "serve", str(folder), "--port", "0"]
        ours = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert ours.stdout is not None
            address = ours.stdout.readline().split(" on ")[1].split(";")[0]
            theirs = Peer(run.tokenizer.size)
            found = {"ours": {}, "theirs": {}}
            for _ in range(typed.rounds + 1):  # the first warms up
                for clients in (1, 2, 4, 8):
                    for who, where in (("ours", address), ("theirs", theirs.address)):
                        found[who].setdefault(clients, []).append(speed(where, clients, typed.tokens))
            theirs.close()
        finally:
            ours.terminate()
            ours.wait()
    rates = {who: {n: statistics.median(some[1:]) for n, some in of.items()} for who, of in found.items()}
    together = [eight / one for eight, one in zip(found["ours"][8][1:], found["ours"][1][1:])]
    record(
        "serve_speed",
        {
            "size": f"gpt, {LAYERS} × {WIDTH}, {run.tokenizer.size} tokens, {typed.tokens} new ones each, greedy",
            "tokens_per_second": {who: {str(n): round(rate, 1) for n, rate in of.items()} for who, of in rates.items()},
            "eight_clients_against_one_after_the_other": round(statistics.median(together), 3),
            "spread": [round(min(together), 3), round(max(together), 3)],
            "peer": "transformers 4.57.6 generate behind FastAPI",
            "ratio_to_peer": {str(n): round(rates["ours"][n] / rates["theirs"][n], 3) for n in rates["ours"]},
            "rounds": typed.rounds,
        },
    )


def speed(address: str, clients: int, tokens: int) -> float:
    """Tokens a second while eight requests are asked by so many clients."""
    waiting, lock, written = list(PROMPTS), threading.Lock(), []

    def client() -> None:
        with httpx.Client(timeout=600) as http:
            while True:
                with lock:
                    if not waiting:
                        return
                    prompt = waiting.pop()
                form = {"model": "gpt", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
                answer = http.post(f"{address}/v1/completions", json=form).json()
                written.append(answer["usage"]["completion_tokens"])

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(written) / (time.perf_counter() - begun)


class Peer:
    """transformers' GPT-2 of the same size behind FastAPI, in a process of its own."""

    def __init__(self, vocabulary: int) -> None:
        context = multiprocessing.get_context("spawn")
        end, theirs = context.Pipe()
        self.process = context.Process(target=_peer, args=(vocabulary, theirs), daemon=True)
        self.process.start()
        self.address = f"http://127.0.0.1:{end.recv()}"
        while True:
            try:
                httpx.get(f"{self.address}/health")
                return
            except httpx.TransportError:
                time.sleep(0.1)

    def close(self) -> None:
        self.process.terminate()


def _peer(vocabulary: int, end: Any) -> None:
    import socket

    import torch
    import uvicorn
    from fastapi import FastAPI
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=vocabulary, n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, n_positions=CONTEXT)
    model = GPT2LMHeadModel(config).eval()
    app, lock = FastAPI(), threading.Lock()

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.post("/v1/completions")
    def completions(form: dict[str, Any]) -> dict[str, Any]:
        ids = torch.randint(vocabulary, (1, 9))
        with lock, torch.no_grad():
            model.generate(
                ids,
                max_new_tokens=form["max_tokens"],
                min_new_tokens=form["max_tokens"],
                do_sample=False,
                pad_token_id=0,
            )
        return {"usage": {"completion_tokens": form["max_tokens"]}}

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    end.send(listener.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
