import os

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Token files of tests stay out of the user's cache."""
    os.environ["ENSUE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def seeded():
    import torch

    torch.manual_seed(0)
