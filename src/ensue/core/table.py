"""A lazy table: names to classes, imported when first asked for; other packages add theirs by entry point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ensue.core.errors import InputError, unknown_name


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a named thing lives, as "package.module:Name", and what it is in a few words."""

    target: str
    summary: str


class Table:
    """Names to entries. ``group`` is the entry point through which other packages add names."""

    def __init__(self, kind: str, group: str, entries: dict[str, Entry]) -> None:
        self.kind, self.group, self._own = kind, group, entries

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Our entries and those of other installed packages; ours win."""
        theirs = {
            point.name: Entry(point.value, f"from {point.dist.name if point.dist else 'another package'}")
            for point in entry_points(group=self.group)
        }
        return {**theirs, **self._own}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def load(self, name: str) -> Any:
        """The thing itself; an unknown name gets the nearest known one."""
        if name not in self.entries:
            raise unknown_name(self.kind, name, self.entries)
        return load_target(self.entries[name].target)


def load_target(target: str) -> Any:
    """What "package.module:Name" names."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot import {target!r}: {error}", hint="write package.module:Class") from error
