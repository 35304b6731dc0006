"""What tests of kernels share: a number of threads that is put back, and queries, keys and values of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from ensue.kernels.short_attention import Parts


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def parts() -> Callable[..., Parts]:
    """What was projected: so many widths side by side in each part, the first with the queries."""

    def made(queries: int, keys: int, widths: tuple[int, ...], rows: int = 3, width: int = 32) -> Parts:
        torch.manual_seed(0)
        times = (queries, *[keys] * (len(widths) - 1))
        return tuple(torch.randn(rows, time, many * width, requires_grad=True) for time, many in zip(times, widths))

    return made
