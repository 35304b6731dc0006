"""Beam search with a Transformer of the paper's base size against transformers' Marian and CTranslate2, in turns.

python -m benchmarks.speed.beam [--short] [--rounds 3]

6 + 6 layers, width 512, 32,000 tokens, the same random weights for all; a beam of 5, 16 sources of 10 to 30 tokens at
once, each of whose translations has 32 tokens (random weights never end one). CTranslate2 in single precision, as the
others; in eight bits against ours in eight bits.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.models.transformer import Transformer, TransformerConfig

VOCABULARY, END, WIDTH, HEADS, ROWS, TOKENS, BEAM = 32_000, 0, 512, 8, 16, 32, 5


def model_of(layers: int) -> Transformer:
    torch.manual_seed(0)
    sizes = {"vocabulary": VOCABULARY, "source_vocabulary": VOCABULARY, "layers": layers, "hidden": WIDTH}
    model = Transformer(TransformerConfig(**sizes, heads=HEADS, norm="post", tied="all")).eval()
    model.embed.weight.data.mul_(3)  # so that some tokens are likelier than others
    return model


def sources(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(turn)
    lengths = torch.randint(10, 31, (ROWS,), generator=chance)
    return torch.randint(1, VOCABULARY, (ROWS, int(lengths.max())), generator=chance), lengths


def ours(layers: int, int8: bool = False) -> Work:
    from ensue.kernels.int8 import quantise
    from ensue.search.beam import Search, beam_search

    keep_freed_memory()
    model = model_of(layers)
    if int8:
        model = quantise(model)

    def work(turn: int) -> Round:
        source, lengths = sources(turn)
        begun = time.perf_counter()
        with torch.no_grad():
            state = model.start(source, lengths)
        found = beam_search(model, state, END, end=None, longest=TOKENS, how=Search(beam=BEAM, length="none"))
        return Round(ROWS, time.perf_counter() - begun, [one.hypotheses[0].tokens for one in found])

    return work


def marian(layers: int) -> Any:
    """Marian with the same weights; one token more is its padding, which is never written."""
    from transformers import MarianConfig, MarianMTModel

    from ensue.exchange.huggingface import marian_weights

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", layers), ("attention_heads", HEADS), ("ffn_dim", 4 * WIDTH))
    }
    marks = {"pad_token_id": VOCABULARY, "eos_token_id": END, "bos_token_id": END, "decoder_start_token_id": END}
    config = MarianConfig(
        vocab_size=VOCABULARY + 1,
        d_model=WIDTH,
        activation_function="relu",
        scale_embedding=True,
        forced_eos_token_id=None,
        max_position_embeddings=512,
        **sides,
        **marks,
    )
    model = MarianMTModel(config).eval()
    weights = marian_weights(model_of(layers))
    for name, tensor in weights.items():
        if "layers" not in name:
            weights[name] = torch.nn.functional.pad(tensor, (0, 1) if len(tensor) == 1 else (0, 0, 0, 1))
    weights["final_logits_bias"][0, -1] = float("-inf")
    model.load_state_dict(weights, strict=False)
    return model


def transformers(layers: int) -> Work:
    model = marian(layers)

    def work(turn: int) -> Round:
        source, lengths = sources(turn)
        begun = time.perf_counter()
        with torch.inference_mode():
            rows = model.generate(
                input_ids=source,
                attention_mask=(torch.arange(source.shape[1]) < lengths[:, None]).long(),
                num_beams=BEAM,
                do_sample=False,
                early_stopping=False,
                length_penalty=0.0,
                min_new_tokens=TOKENS,
                max_new_tokens=TOKENS,
            )
        return Round(ROWS, time.perf_counter() - begun, rows[:, 1:].tolist())

    return work


def ctranslate2(layers: int, kind: str) -> Work:
    import ctranslate2 as library
    from ctranslate2.converters.transformers import MarianMTLoader

    names = [str(number) for number in range(VOCABULARY)]
    with TemporaryDirectory() as folder:
        theirs = marian(layers)
        spec = MarianMTLoader().get_model_spec(theirs)
        spec.decoder.start_from_zero_embedding = False  # theirs begins with the end mark, as ours
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
        spec.config.eos_token, spec.config.unk_token, spec.config.decoder_start_token = (
            names[END],
            names[-1],
            names[END],
        )
        spec.config.add_source_eos = False
        spec.validate()
        spec.optimize(quantization=None)
        spec.save(folder)
        threads = torch.get_num_threads()
        model = library.Translator(folder, compute_type=kind, inter_threads=1, intra_threads=threads)

    def work(turn: int) -> Round:
        source, lengths = sources(turn)
        rows = [[names[token] for token in row[:size]] for row, size in zip(source.tolist(), lengths.tolist())]
        begun = time.perf_counter()
        found = model.translate_batch(
            rows, beam_size=BEAM, length_penalty=0.0, min_decoding_length=TOKENS, max_decoding_length=TOKENS
        )
        spent = time.perf_counter() - begun
        return Round(ROWS, spent, [[int(name) for name in one.hypotheses[0]] for one in found])

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """The share of translations that are the same as ours in single precision."""
    pairs = {who: list(zip(done["ours"], rounds)) for who, rounds in done.items() if who != "ours"}
    same = {
        who: round(sum(a == b for one, other in both for a, b in zip(one.result, other.result)) / (len(both) * ROWS), 3)
        for who, both in pairs.items()
    }
    assert same["transformers"] > 0.9, same
    return {"same_translations": same}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    typed = parser.parse_args()
    layers, rounds = (2, 1) if typed.short else (6, typed.rounds)
    contest = Contest(
        result="beam_speed",
        work="beam 5, Transformer base, 16 at once",
        size=f"{layers}+{layers} layers, width {WIDTH}, {VOCABULARY:,} tokens, {TOKENS} tokens each",
        unit="sentences",
        programs={
            "ours": partial(ours, layers),
            "ours int8": partial(ours, layers, True),
            "transformers": partial(transformers, layers),
            "CTranslate2": partial(ctranslate2, layers, "float32"),
            "CTranslate2 int8": partial(ctranslate2, layers, "int8"),
        },
        marks=[
            Mark("ours", "transformers", 2.0),
            Mark("ours", "CTranslate2", 1.0),
            Mark("ours int8", "CTranslate2 int8", 1.0),
        ],
        flops=2.0 * BEAM * TOKENS * (layers * 16 * WIDTH**2 + VOCABULARY * WIDTH) if layers else 0.0,
    )
    hold(contest, rounds, agree)


if __name__ == "__main__":
    main()
