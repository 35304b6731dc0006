import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from ensue.core.errors import InputError
from ensue.measure.sharding import _ranks, shard
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel


def gpt(**more):
    shape = {"vocabulary": 50, "layers": 3, "heads": 2, "hidden": 16, "context": 8, "positions": "learned"}
    return GPTLanguageModel(GPTConfig(**{**shape, **more}))


@pytest.mark.parametrize("more", [{}, {"experts": 3, "experts_active": 2}])
def test_equal_groups_are_sharded_like_each_of_them(more):
    found = shard(lambda: gpt(**more), 8)
    with torch.device("meta"):
        model = gpt(**more)
    with _ranks(8) as mesh:
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        expected = sum(p.to_local().numel() for p in model.parameters())
    assert found.parameters == expected and found.groups == 4
    assert found.largest == max(sum(p.numel() for p in gpt(**more).blocks[0].parameters()), 50 * 16 + 8 * 16 + 2 * 16)


def test_one_rank_holds_everything_and_the_process_group_is_destroyed():
    whole = sum(p.numel() for p in gpt().parameters())
    assert shard(gpt, 1).parameters == whole
    assert whole / 4 <= shard(gpt, 4).parameters < whole / 4 * 1.2
    assert not dist.is_initialized()


def test_a_model_without_blocks_is_sharded_too():
    def lstm():
        return LSTMLanguageModel(LSTMConfig(vocabulary=64, hidden=16, layers=2))

    whole = sum(p.numel() for p in lstm().parameters())
    assert whole / 2 <= shard(lstm, 2).parameters <= whole / 2 + 8


def test_too_many_ranks_are_rejected():
    with pytest.raises(InputError, match="ranks"):
        shard(gpt, 1 << 20)
