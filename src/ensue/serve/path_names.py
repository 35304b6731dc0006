"""Names instead of paths: what the server tells a client shows no folder of its machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PART = r"[^\s/\\'\"`;,:()<>|]+"
ABSOLUTE_PATH = re.compile(rf"(?<![\w/.:~\\-])(?:[A-Za-z]:\\|~?/)(?:{PART}[/\\])+({PART})?")
"""An absolute path of two parts or more; its last part is kept."""


class PathNames:
    """Replaces the folders of runs and races by the names under which they are served."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        names = {form: name for name, path in folders.items() for form in _spellings(path)}
        self._names = _longest_first(names)
        self._parents = _longest_first({f"{parent}/": "" for form in names for parent in _above(form)})

    def replace(self, value: Any) -> Any:
        """Replace the folders in all strings of a nested value, names of fields included."""
        if isinstance(value, str):
            return _replace(value, self._names)
        if isinstance(value, dict):
            return {self.replace(name): self.replace(item) for name, item in value.items()}
        return [self.replace(item) for item in value] if isinstance(value, list | tuple) else value

    def message(self, text: str) -> str:
        """A message for clients: folders become names, and of any other absolute path only the last part stays.

        >>> PathNames({"lstm": Path("/my runs/lstm")}).message("/my runs/lstm: cannot read /etc/models/a.txt")
        'lstm: cannot read a.txt'
        """
        known = _replace(_replace(text, self._names), self._parents)
        return ABSOLUTE_PATH.sub(lambda found: found.group(1) or "…", known)


def _replace(text: str, replacements: list[tuple[str, str]]) -> str:
    for path, name in replacements:
        text = text.replace(path, name)
    return text


def _longest_first(replacements: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(replacements.items(), key=lambda pair: -len(pair[0]))


def _spellings(path: Path) -> set[str]:
    return {str(path), str(path.absolute()), str(path.resolve())} - {"."}


def _above(path: str) -> list[Path]:
    """The folders above an absolute path, except the outermost."""
    return [parent for parent in Path(path).parents if len(parent.parts) > 1 and parent.is_absolute()]
