"""The names that others build on: few, listed here, documented by examples that run, and quick to import."""

import doctest
import inspect
import json
import subprocess
import sys
import warnings

import pytest

import proxyhash

PUBLIC = {
    "Hasher": "(network, transform, class_names, proxies, metadata, onnx, folder, training_codes)",
    "Index": None,
    "InputError": None,
    "ProxySet": "(weights, kind, seed, quality)",
    "ProxyhashWarning": None,
    "class_mean_similarity": "(features, labels)",
    "design_proxies": (
        "(classes, bits, kind, similarity, seed, *, tammes_restarts, rotation_restarts, solver, min_distance, "
        "distance_share, threads, progress)"
    ),
    "list_kinds": "()",
    "tag_similarity": "(tags)",
}
METHODS = {
    "Hasher": (
        "bits classify embed embed_batches embed_pixels encode encode_queries features head head_forward load "
        "nearest_proxies pixel_spec save use_onnx"
    ),
    "Index": (
        "add bits calibration close code folder_sync generation hasher info input item list_items model open range_search "
        "remove sample_items search vector_sync width"
    ),
    "ProxySet": "as_dict binary bits classes describe load save title trainable",
}
HEAVY = (
    "torch",
    "numba",
    "llvmlite",
    "scipy",
    "numpy",
    "matplotlib",
    "sklearn",
    "PIL",
    "pandas",
    "huggingface_hub",
    "jinja2",
)


def test_the_public_names_are_these() -> None:
    assert set(proxyhash.__all__) == set(PUBLIC)
    assert set(PUBLIC) <= set(dir(proxyhash))
    with pytest.raises(AttributeError, match="has no attribute 'Hash'"):
        proxyhash.Hash  # noqa: B018


def test_their_parameters_keep_their_names_and_order() -> None:
    for name, expected in PUBLIC.items():
        if expected:
            parameters = inspect.signature(getattr(proxyhash, name)).parameters.values()
            keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
            words = positional + (["*", *keyword_only] if keyword_only else [])
            assert f"({', '.join(words)})" == expected


@pytest.mark.parametrize("name", METHODS)
def test_their_methods_are_these_and_typed(name: str) -> None:
    kind = getattr(proxyhash, name)
    public = {method: getattr(kind, method) for method in vars(kind) if not method.startswith("_")}
    fields = set(getattr(kind, "__dataclass_fields__", {}))
    assert sorted(set(public) - fields) == METHODS[name].split()
    for method, found in public.items():
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if inspect.isfunction(function):
            assert "return" in function.__annotations__, f"{name}.{method} says no type"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    thing = getattr(proxyhash, name)
    module = sys.modules[thing.__module__]
    (example,) = doctest.DocTestFinder(recurse=False).find(thing, name, module)
    assert example.examples, f"{name} has no example"
    with warnings.catch_warnings():
        result = doctest.DocTestRunner(verbose=False).run(example)
    assert result.failed == 0


def test_importing_it_loads_nothing_heavy_and_neither_does_the_command() -> None:
    code = f"""
import json, sys, time
began = time.process_time()
import proxyhash
seconds = time.process_time() - began
after_import = [name for name in {HEAVY} if name in sys.modules]
import proxyhash.cli.app
print(json.dumps([seconds, after_import, [name for name in {HEAVY} if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, after_import, after_command = json.loads(done.stdout)
    assert after_import == []
    assert after_command == []
    assert seconds < 0.5
