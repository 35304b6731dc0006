import pytest
import torch

from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.train.sharding import shard_units


@pytest.mark.parametrize("experts", [1, 4])
def test_blocks_are_units_and_experts_belong_to_theirs(experts):
    with torch.device("meta"):
        model = GPTLanguageModel(
            GPTConfig(vocabulary=9, layers=3, heads=2, hidden=8, context=8, experts=experts, experts_active=1)
        )
    assert [id(unit) for unit in shard_units(model)] == [id(block) for block in reversed(model.blocks)]


def test_no_unit_shares_a_weight_with_another():
    with torch.device("meta"):
        model = BERT(BERTConfig(vocabulary=31, layers=2, hidden=8, heads=2, context=16))
    held = [parameter for unit in shard_units(model) for parameter in unit.parameters()]
    assert len(held) == len({id(parameter) for parameter in held}) > 0
