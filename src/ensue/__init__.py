"""ensue (to come next): train, compare, inspect and serve every kind of sequence model.

>>> import ensue
>>> [name for name in dir(ensue) if name.islower() and not name.startswith("_")][:3]
['check', 'convert', 'cost']

The commands are functions here: ``ensue.fit``, ``ensue.load``, ``ensue.race`` … Nothing heavy is imported before one of
them is used.
"""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.cpu_load import limit_spinning
from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.core.errors import InputError as InputError
    from ensue.core.version import __version__ as __version__
    from ensue.runs.load import Run as Run, load as load
    from ensue.verbs.check import check as check
    from ensue.verbs.convert import convert as convert
    from ensue.verbs.cost import cost as cost
    from ensue.verbs.distil import distil as distil
    from ensue.verbs.doctor import doctor as doctor
    from ensue.verbs.eval import eval as eval
    from ensue.verbs.fit import fit as fit
    from ensue.verbs.race import race as race
    from ensue.verbs.systems import systems as systems

limit_spinning()  # before torch is imported
__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
