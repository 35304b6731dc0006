"""Packages export their public names lazily: each can be imported, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = ("ensue", "ensue.models", "ensue.nn", "ensue.train")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported_and_is_listed(package: str) -> None:
    module = import_module(package)
    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'ensue\.nn' has no attribute 'Nonsense'"):
        _ = import_module("ensue.nn").Nonsense


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_does_not_import_torch(package: str) -> None:
    code = f"import sys, {package}; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
