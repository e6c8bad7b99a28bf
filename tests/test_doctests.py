import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import proxyhash

EXAMPLES = [
    module.name
    for module in pkgutil.walk_packages(proxyhash.__path__, "proxyhash.")
    if (spec := importlib.util.find_spec(module.name)) and spec.origin and ">>> " in Path(spec.origin).read_text("utf-8")
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
