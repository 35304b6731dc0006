"""Folders of Llama, Mistral, Qwen and Gemma from transformers to ours and back: logits, text and prompts are equal."""

import json

import hub_decoders
import pytest
import torch

import ensue
from ensue.data.chat_template import Message
from ensue.runs.chat import chat_template, stop_tokens
from ensue.verbs.convert import convert

transformers = pytest.importorskip("transformers")
TOKENIZERS = {
    "llama": lambda: hub_decoders.pieces("prepend"),
    "mistral": lambda: hub_decoders.pieces("first"),
    "gemma2": lambda: hub_decoders.pieces("never"),
    "gemma3": lambda: hub_decoders.pieces("never"),
}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Does the rain fall? 12345 naïve ☂"},
    {"role": "assistant", "content": " Yes. "},
    {"role": "user", "content": "  and now?"},
]


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


def greedy(model, ids, count):
    """Their greedy text, whatever ends it."""
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize("kind", hub_decoders.KINDS)
def test_a_folder_there_and_back(kind, tmp_path):
    inner = TOKENIZERS.get(kind, hub_decoders.byte_level)()
    theirs = hub_decoders.write_folder(tmp_path / "hub", kind, inner, shard="40KB")
    assert len(list((tmp_path / "hub").glob("*.safetensors"))) > 1
    run = ensue.load(convert(tmp_path / "hub", out=tmp_path / "run"))
    tokens = torch.randint(0, theirs.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
    wanted = logits(theirs, tokens)
    assert (logits(run.model, tokens) - wanted).abs().max() < 1e-4
    convert(tmp_path / "run", to="hf", out=tmp_path / "back")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    assert type(back) is type(theirs)
    assert (logits(back, tokens) - wanted).abs().max() < 1e-4

    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    template, messages = chat_template(run), [Message(**one) for one in MESSAGES]
    for reply in (True, False):
        prompt = reference.apply_chat_template(MESSAGES, add_generation_prompt=reply)
        assert template.tokens(messages, reply).tolist() == prompt
        assert again.apply_chat_template(MESSAGES, add_generation_prompt=reply) == prompt
    assert stop_tokens(run) == {inner.token_to_id("</s>"), inner.token_to_id("<|stop|>")}
    assert json.loads((tmp_path / "back/generation_config.json").read_text())["eos_token_id"] == [
        inner.token_to_id("</s>"),
        inner.token_to_id("<|stop|>"),
    ]
    prompt = reference("the rain fell")["input_ids"]
    (text,) = run.generate("the rain fell", tokens=12, temperature=0.0)
    mine = list(text.sample.tokens)
    assert mine == greedy(theirs, prompt, 12)[: len(mine)] and mine
    assert again("the rain fell")["input_ids"] == prompt
