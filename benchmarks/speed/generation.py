"""Generation with a model of GPT-2's size against transformers and CTranslate2, with the same weights, in turns.

python -m benchmarks.speed.generation [--short] [--tokens 64]

12 layers, width 768, 12 heads, 50,257 tokens, learned positions; weights are random, since speed asks for no others.
All go on greedily with the same prompts of 16 tokens, and write the same tokens as long as the two best of a step are
not next to equal. One text at a time, and eight together; in single precision, and with weights in eight bits. What
eight bits cost in perplexity is measured on a trained model by ``benchmarks.quality.int8``.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT, PROMPT = 12, 768, 12, 50_257, 1024, 16


def reference(layers: int) -> Any:
    """transformers' model, the same for all who ask."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval()
    for block in model.transformer.h:  # as large as those of a trained model, so that texts differ
        block.attn.c_attn.weight.data.mul_(4)
        block.mlp.c_fc.weight.data.mul_(4)
    return model


def prompts(rows: int, turn: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, PROMPT), generator=torch.Generator().manual_seed(turn))


def ours(layers: int, rows: int, tokens: int, int8: bool = False) -> Work:
    from ensue.exchange.huggingface import gpt_from_weights
    from ensue.kernels.int8 import quantise
    from ensue.search.continuous_batching import ContinuousBatch, Row
    from ensue.search.sampling import Sampling

    keep_freed_memory()
    theirs = reference(layers)
    model: Any = gpt_from_weights("gpt2", theirs.config.to_dict(), theirs.state_dict())
    del theirs
    if int8:
        model = quantise(model)

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        together = ContinuousBatch(model)
        texts = [Row(prompt, Sampling(tokens=tokens, temperature=0)) for prompt in prompts(rows, turn)]
        found: dict[int, list[int]] = {id(text): [] for text in texts}
        together.join(texts)
        while len(together):
            for text, drawn in together.step():
                assert not isinstance(drawn, Exception)
                found[id(text)].append(drawn.token)
        return Round(rows * tokens, time.perf_counter() - begun, list(found.values()))

    return work


def transformers(layers: int, rows: int, tokens: int) -> Work:
    model = reference(layers)

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        how = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
        given = prompts(rows, turn)
        with torch.inference_mode():
            found = model.generate(given, attention_mask=torch.ones_like(given), **how)
        return Round(rows * tokens, time.perf_counter() - begun, found[:, PROMPT:].tolist())

    return work


def ctranslate2(layers: int, rows: int, tokens: int, kind: str) -> Work:
    """CTranslate2, which calls tokens by name: here by their numbers."""
    import ctranslate2 as library
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    with TemporaryDirectory() as folder:
        reference(layers).save_pretrained(Path(folder) / "hf")
        names = {str(number): number for number in range(VOCABULARY)}
        plain = Tokenizer(WordLevel(names, unk_token="0"))
        ends = {"bos_token": str(VOCABULARY - 1), "eos_token": str(VOCABULARY - 1), "unk_token": "0"}
        PreTrainedTokenizerFast(tokenizer_object=plain, **ends).save_pretrained(Path(folder) / "hf")
        TransformersConverter(str(Path(folder) / "hf")).convert(str(Path(folder) / "ct2"))
        threads = torch.get_num_threads()
        model = library.Generator(str(Path(folder) / "ct2"), compute_type=kind, inter_threads=1, intra_threads=threads)

    def work(turn: int) -> Round:
        given = [[str(number) for number in row] for row in prompts(rows, turn).tolist()]
        begun = time.perf_counter()
        found = model.generate_batch(
            given, max_length=tokens, min_length=tokens, include_prompt_in_result=False, beam_size=1, sampling_topk=1
        )
        spent = time.perf_counter() - begun
        return Round(rows * tokens, spent, [one.sequences_ids[0] for one in found])

    return work


def same(done: dict[str, list[Round]]) -> dict[str, Any]:
    """The share of texts, up to their first difference, on which each agrees with transformers."""
    shares = {}
    for who, rounds in done.items():
        if who != "transformers":
            pairs = [
                pair for ours, theirs in zip(rounds, done["transformers"]) for pair in zip(ours.result, theirs.result)
            ]
            until = [next((at for at, (a, b) in enumerate(zip(*pair)) if a != b), len(pair[1])) for pair in pairs]
            shares[who] = round(sum(until) / sum(len(pair[1]) for pair in pairs), 3)
    assert shares["ours"] > 0.9, shares  # else it is not the same model
    return {"same_tokens_as_transformers": shares}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--rows", type=int, default=0)
    typed = parser.parse_args()
    layers, tokens, rounds = (3, 16, 2) if typed.short else (LAYERS, typed.tokens, 3)
    least = {1: (1.6, 1.05, 2.0), 8: (2.0, 1.0, 1.0)}
    for rows in (typed.rows,) if typed.rows else (1, 8):
        programs = {
            "ours": partial(ours, layers, rows, tokens),
            "ours int8": partial(ours, layers, rows, tokens, True),
            "transformers": partial(transformers, layers, rows, tokens),
            "CTranslate2": partial(ctranslate2, layers, rows, tokens, "float32"),
            "CTranslate2 int8": partial(ctranslate2, layers, rows, tokens, "int8"),
        }
        first, second, third = least[rows]
        numbers = sum(p.numel() for p in reference(layers).parameters()) - CONTEXT * WIDTH
        contest = Contest(
            result="generation_speed",
            work=f"generation, GPT-2's size, {rows} at once",
            size=f"{layers} layers, width 768, {VOCABULARY:,} tokens, prompts of {PROMPT}, {tokens} new ones, greedy",
            unit="tokens",
            programs=programs,
            marks=[
                Mark("ours", "transformers", first),
                Mark("ours", "CTranslate2", second),
                Mark("ours int8", "CTranslate2 int8", third),
                Mark("ours int8", "transformers"),
            ],
            bytes=4 * numbers / rows,
        )
        hold(contest, typed.rounds or rounds, same)


if __name__ == "__main__":
    main()
