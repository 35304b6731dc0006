"""Means over the examples of all ranks, from each rank's local mean.

    mean = Σ_r n_r · mean_r / Σ_r n_r

A loss is a mean over tokens, rows or labels. A rank that holds only some rows of a batch scales its local mean by
n_r / Σ n, so that losses and gradients summed over ranks equal those of the whole batch.
"""

from __future__ import annotations

from torch import Tensor

from ensue.nn.state import State

LossAndState = tuple[Tensor, State | None]
"""What an objective returns: the loss of a batch (a scalar), and the state to carry to the next one."""


class LossReduction:
    """Reduction in a single process: the local mean is the global mean."""

    idle = False
    """Whether this rank has no rows of its own in the batch and reads one only to stay in step with the others."""

    def scale_mean(self, mean: Tensor, count: Tensor | float) -> Tensor:
        """Return this rank's term of the global mean, from its local ``mean`` over ``count`` items.

        A collective operation: all ranks must call it, even those with no items.
        """
        return mean

    def total(self, count: Tensor | float) -> float:
        """Sum a count over all ranks."""
        return float(count)


LOCAL = LossReduction()
