"""Whether any of many dicts has changed, or any of many tensors' memory moved, in a few microseconds.

CPython numbers each state of every dict with a version that no other state has (PEP 509), so that its own caches can
tell whether what they know of a dict still holds. To look at two thousand dicts and what they contain takes most of a
millisecond where they are not in the processor's cache; to compare two thousand numbers takes much less, as no
comparison waits for another.

The version has no function in Python. It is the field after the size of a dict, and ``available`` says whether it is
there and behaves as it should. It does in CPython 3.11; elsewhere, where it does not, objects are looked at one by one.

Where a tensor's memory is, is looked at in the same way: a tensor points to its storage, and a storage to its memory.
``t.data = …`` changes the first, ``t.share_memory_()`` the second, and neither changes a dict.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.kernels.loops import Loops
from ensue.kernels.threads import torch_threads

loops = Loops("ensue.kernels.version_loops")
OFFSET = 24
"""Where the version of a dict is: after its references, its type and its size, of 8 bytes each."""
POINTER = 16
"""Where a tensor has the address of its storage, and a storage that of its memory: after its type and references."""


class Watched:
    """Numbers at some addresses."""

    def __init__(self, addresses: Iterable[int]) -> None:
        self.addresses = np.array([*addresses], np.int64)
        self.known = np.empty_like(self.addresses)
        self.compare = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loops.compare_versions.address)
        self.argument = (ctypes.c_int64 * 4)(0, len(self.addresses), self.addresses.ctypes.data, self.known.ctypes.data)
        self.remember()

    def remember(self) -> None:
        """Remember the numbers as they are now."""
        self.known[:] = [number_at(one) for one in self.addresses.tolist()]

    def unchanged(self) -> bool:
        """Whether all numbers are the same as then."""
        self.compare(ctypes.addressof(self.argument))
        return self.argument[0] == 0


class DictVersions(Watched):
    """The versions of some dicts, which are kept alive: they change when a value is set, replaced or deleted."""

    def __init__(self, dicts: Iterable[dict[Any, Any]]) -> None:
        self.dicts = list(dicts)
        super().__init__(id(one) + OFFSET for one in self.dicts)


class Places:
    """Where the memory of some tensors is; the tensors are kept alive."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = [one for one in tensors if one.layout == torch.strided]
        self.known = [*map(Tensor.data_ptr, self.tensors)]
        self.storages: Watched | None = None
        storages = [one.untyped_storage() for one in self.tensors]
        if available() and all(map(_points_to, self.tensors, storages)):
            self.storages = Watched(one._cdata + POINTER for one in self.tensors)
            self.memory = Watched(one._cdata + POINTER for one in storages)

    def unchanged(self) -> bool:
        """Whether all memory is where it was."""
        if self.storages is None:
            return [*map(Tensor.data_ptr, self.tensors)] == self.known
        return self.storages.unchanged() and self.memory.unchanged()  # a storage that was left may be gone


def _points_to(tensor: Tensor, storage: torch.UntypedStorage) -> bool:
    """Whether a tensor and its storage have addresses where we look for them."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and number_at(tensor._cdata + POINTER) == storage._cdata
        and number_at(storage._cdata + POINTER) == storage.data_ptr()
    )


def number_at(address: int) -> int:
    """The 8 bytes at an address, as a number."""
    return ctypes.c_int64.from_address(address).value


def version_of(one: dict[Any, Any]) -> int:
    """The number of a dict's present state; only where ``available``."""
    return number_at(id(one) + OFFSET)


class _Owner:
    """Something with attributes."""


@cache
def available() -> bool:
    """Whether this Python has versions of dicts, by trying what changes them and what does not."""
    known = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
    if not known or not getattr(sys, "_is_gil_enabled", lambda: True)() or torch_threads() is None:
        return False
    owner, table = _Owner(), OrderedDict({0: 0})
    attributes = vars(owner)
    owner.a = 0  # type: ignore[attr-defined]
    looks: list[Callable[[], object]] = [lambda: [*attributes.values()], lambda: table.get(0)]
    changes: list[tuple[dict[Any, Any], Callable[[], object]]] = [
        (attributes, lambda: setattr(owner, "a", 1)),
        (attributes, lambda: setattr(owner, "b", 1)),
        (attributes, lambda: delattr(owner, "a")),
        (table, lambda: table.update({0: 1})),
        (table, lambda: table.update({1: 1})),
        (table, table.clear),
    ]
    for one, change in changes:
        before = version_of(one)
        for look in looks:
            look()
        if version_of(one) != before:
            return False
        change()
        if version_of(one) == before:
            return False
    return True
