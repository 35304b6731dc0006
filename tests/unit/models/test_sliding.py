"""Texts that are longer than the context: what is computed, and how much is read for it."""

import pytest
import torch

from ensue.models.llama import LlamaConfig, LlamaLanguageModel


def small(context):
    torch.manual_seed(0)
    config = LlamaConfig(vocabulary=32, layers=2, heads=2, kv_heads=1, hidden=16, context=context)
    return LlamaLanguageModel(config).eval()


@pytest.mark.parametrize("context", [1, 2, 7, 8])
@pytest.mark.parametrize("before", [0, 3, 7])
def test_the_last_token_of_a_long_text_has_the_same_logits_when_it_alone_is_wanted(context, before):
    model = small(context)
    tokens = torch.randint(0, 32, (2, 40))
    with torch.no_grad():
        for length in range(before + 1, 41):
            state = model(tokens[:, :before], model.start(2)).state if before else model.start(2)
            whole = model(tokens[:, before:length], state, want=("logits",))
            last = model(tokens[:, before:length], state, want=("last",))
            torch.testing.assert_close(last.logits[:, -1], whole.logits[:, -1], rtol=0, atol=1e-6)
            new = tokens[:, :1]
            after = [model(new, one.state, want=("last",)).logits for one in (whole, last)]
            torch.testing.assert_close(*after, rtol=0, atol=1e-6)


def test_a_long_prompt_costs_no_more_than_one_window():
    model, read = small(8), []
    model.blocks.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].shape[1]))
    with torch.no_grad():
        model(torch.randint(0, 32, (1, 1000)), model.start(1), want=("last",))
    assert sum(read) <= 8
