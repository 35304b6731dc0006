"""A mean over what several processes have, made of the mean that each has over its own.

    mean = Σ_r n_r · mean_r / Σ_r n_r

A loss is a mean over tokens, rows or labels. Where rank r holds only some rows of a batch, its part of the whole mean
is n_r / Σ n of its own; gradients of the parts add up to the gradient of the whole.
"""

from __future__ import annotations

from torch import Tensor


class Pool:
    """One process: its own mean is the whole."""

    idle = False
    """Whether the rows that this process reads are another's, read for nothing."""

    def share(self, mean: Tensor, count: Tensor | float) -> Tensor:
        """This process's part of a mean over all, of its own ``mean`` over ``count`` things.

        All processes must ask alike, however many things each has.
        """
        return mean

    def total(self, count: Tensor | float) -> float:
        """How many things all processes have together."""
        return float(count)


ALONE = Pool()
