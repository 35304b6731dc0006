"""ensue (to come next): train, race, open up and serve every kind of sequence model.

>>> import ensue
>>> sorted(name for name in ensue.__all__ if name.islower() and not name.startswith("_"))[:3]
['check', 'convert', 'cost']

The words people type are functions here: ``ensue.fit``, ``ensue.load``, ``ensue.race`` … Nothing heavy is imported
before one of them is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WORDS = {
    "check": "ensue.verbs.check",
    "convert": "ensue.verbs.convert",
    "cost": "ensue.verbs.cost",
    "distil": "ensue.verbs.distil",
    "doctor": "ensue.verbs.doctor",
    "fit": "ensue.verbs.fit",
    "load": "ensue.runs.load",
    "race": "ensue.verbs.race",
    "systems": "ensue.verbs.systems",
    "InputError": "ensue.core.errors",
    "Run": "ensue.runs.load",
}

__all__ = [
    "InputError",
    "Run",
    "__version__",
    "check",
    "convert",
    "cost",
    "distil",
    "doctor",
    "fit",
    "load",
    "race",
    "systems",
]

if TYPE_CHECKING:
    from ensue.core.errors import InputError
    from ensue.runs.load import Run, load
    from ensue.verbs.check import check
    from ensue.verbs.convert import convert
    from ensue.verbs.cost import cost
    from ensue.verbs.distil import distil
    from ensue.verbs.doctor import doctor
    from ensue.verbs.fit import fit
    from ensue.verbs.race import race
    from ensue.verbs.systems import systems

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _WORDS:
        return getattr(import_module(_WORDS[name]), name)
    raise AttributeError(f"module 'ensue' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 40 ms, so not on import

    try:
        return version("ensue")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+source"
