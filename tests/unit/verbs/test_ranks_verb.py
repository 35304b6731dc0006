from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.runs.distributed import check_ranks
from ensue.train.ranks import SINGLE, Ranks
from ensue.verbs.fit import fit


class Two(Ranks):
    world_size = 2


def settings(**train):
    return SimpleNamespace(
        run=SimpleNamespace(system="lstm", device="cpu"), train=SimpleNamespace(**{"shard": True, **train})
    )


def test_weights_that_cannot_be_sharded_are_refused_before_anything_is_written():
    model = nn.Linear(2, 2)
    check_ranks(settings(), model, Two())
    model.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(InputError, match=r"a scalar weight \(scale\), which FSDP cannot shard; leave out --shard"):
        check_ranks(settings(), model, Two())
    check_ranks(settings(shard=False), model, Two())
    check_ranks(settings(), model, SINGLE)  # one process cuts nothing


def test_sharding_with_one_process_is_noted_as_having_no_effect(tmp_path: Path) -> None:
    notes = []
    text = tmp_path / "text.txt"
    text.write_text("a few words, and a few more\n" * 20)
    settings = {"train.shard": True, "train.steps": 1, "hidden": 8}
    fit("rnn", text, out=tmp_path / "run", settings=settings, report=lambda kind, values: notes.append((kind, values)))
    assert any(kind == "note" and "--shard has no effect" in values["text"] for kind, values in notes)
