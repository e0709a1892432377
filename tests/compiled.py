"""Run by ``make test-compiled`` together with the tests of the modules that are compiled: that
those are the ones tested.

Not collected otherwise, since from a checkout the modules are pure.
"""

from __future__ import annotations

import importlib
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from tests.hot_modules import hot_modules


@pytest.mark.parametrize("name", hot_modules())
def test_the_module_that_is_tested_is_compiled(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES))
