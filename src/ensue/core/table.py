"""A lazy table of named objects, imported on first use; other packages add entries by entry points."""

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
    """An import path "package.module:Name" and a short summary."""

    target: str
    summary: str


class Table:
    """Entries by name; ``group`` is the group of entry points for other packages."""

    def __init__(self, kind: str, group: str, entries: dict[str, Entry]) -> None:
        self.kind, self.group, self._own = kind, group, entries

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """All entries; those of ensue take precedence over other packages."""
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
        """Import an entry; raise InputError with the nearest name if it is unknown."""
        if name not in self.entries:
            raise unknown_name(self.kind, name, self.entries)
        return load_target(self.entries[name].target)


def load_target(target: str) -> Any:
    """Import the object at "package.module:Name"."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # TypeError: a relative name
        raise InputError(f"cannot import {target!r}: {error}", hint="write package.module:Class") from error
