"""The installed version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version  # takes 40 ms, so ensue imports this on first use

try:
    __version__ = version("ensue")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"
