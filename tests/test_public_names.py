"""The names that others build on: few, listed here, documented by examples that run, and quick to import."""

import doctest
import inspect
import json
import subprocess
import sys
import warnings
from operator import attrgetter
from typing import Any

import pytest

import proxyhash

PUBLIC = {
    "ClassBalancedBatchSampler": "(labels, batch_size, samples_per_class, *, seed)",
    "HashHead": "(in_features, bits, *, hidden_dim, dropout)",
    "HashEncoder": (
        "(bits, *, method, settings, normalize, epochs, batch_size, lr, weight_decay, hidden_dim, output, random_state)"
    ),
    "Hasher": "(network, transform, class_names, proxies, metadata, onnx, folder, training_codes, precision)",
    "Index": None,
    "InputError": None,
    "ProxySet": "(weights, kind, seed, quality)",
    "ProxyhashWarning": None,
    "VectorHasher": "(network, transform, class_names, proxies, metadata, onnx, folder, training_codes, precision)",
    "class_mean_similarity": "(features, labels)",
    "design_proxies": (
        "(classes, bits, kind, similarity, seed, *, tammes_restarts, rotation_restarts, solver, min_distance, "
        "distance_share, threads, progress)"
    ),
    "evaluate": "(hasher, data, *, protocol, fold, top, denominator, ks, detailed, data_dir, progress)",
    "fit_vectors": "(vectors, bits, *, labels, method, settings, optim, normalize, seed, device, progress)",
    "list_kinds": "()",
    "losses": None,
    "tag_similarity": "(tags)",
    "train": "(data, bits, method, **options, *, run_dir, resume, strict, data_dir, progress, report)",
    "wrap_backbone": "(module, *, image_size, mean, std, num_features)",
}
LOSSES = {
    "AveragePrecisionLoss": "()",
    "BitwiseProxyLoss": "(proxies)",
    "CosineProxyLoss": "(proxies, *, tau, trainable)",
    "HammingTripletLoss": "(margin)",
    "MutualInformationLoss": "(bins)",
    "PairwiseLoss": "(scale, *, balanced)",
    "PolarizationLoss": "(proxies, *, margin)",
    "ProxyLoss": "(proxies, *, tau, trainable, bias)",
    "ProxyNCALoss": "(proxies, *, tau, trainable)",
    "QuantizationLoss": "()",
    "TagProxyLoss": "(proxies, frequencies, *, tau, trainable)",
    "TripletHingeLoss": "(margin, *, graded)",
}
METHODS = {
    "ClassBalancedBatchSampler": "set_epoch",
    "HashEncoder": "fit score transform",
    "Hasher": (
        "backbone bits classify embed embed_batches embed_pixels encode encode_queries features has_features head "
        "head_forward load nearest_proxies out_features output_batches outputs_of_pixels pixel_spec push_to_hub save "
        "use_onnx width"
    ),
    "Index": (
        "add bits calibration close code columns encoder export_file fit_refinement folder_sync generation has_refinement "
        "hasher import_file info input item list_items model open range_search remove sample_items search stored_queries "
        "vector_sync width"
    ),
    "ProxySet": "as_dict binary bits classes describe load save title trainable",
    "VectorHasher": (
        "backbone bits classify embed embed_batches embed_pixels encode encode_batches encode_queries features from_config "
        "has_features head head_forward load nearest_proxies normalizes out_features output_batches outputs_of_pixels "
        "pixel_spec push_to_hub rows save use_onnx width"
    ),
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


def test_the_losses_are_these() -> None:
    assert {name for name in proxyhash.losses.__all__ if inspect.isclass(getattr(proxyhash.losses, name))} == set(LOSSES)


def test_their_parameters_keep_their_names_and_order() -> None:
    signatures = [(getattr(proxyhash, name), expected) for name, expected in PUBLIC.items()]
    signatures += [(getattr(proxyhash.losses, name), expected) for name, expected in LOSSES.items()]
    for thing, expected in signatures:
        if expected:
            assert _signature(thing) == expected


def _signature(thing: Any) -> str:
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name not in ("self", "args", "kwargs")]
    keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    positional = [f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    words = positional + (["*", *keyword_only] if keyword_only else [])
    return f"({', '.join(words)})"


@pytest.mark.parametrize("name", METHODS)
def test_their_methods_are_these_and_typed(name: str) -> None:
    kind = getattr(proxyhash, name)
    own = [base for base in kind.__mro__ if base.__module__.startswith("proxyhash")]
    public = {method: getattr(kind, method) for base in own for method in vars(base) if not method.startswith("_")}
    fields = set(getattr(kind, "__dataclass_fields__", {}))
    assert sorted(set(public) - fields) == METHODS[name].split()
    for method, found in public.items():
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if inspect.isfunction(function):
            assert "return" in function.__annotations__, f"{name}.{method} says no type"


@pytest.mark.parametrize("name", [*sorted(PUBLIC), *(f"losses.{name}" for name in LOSSES)])
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    thing = attrgetter(name)(proxyhash)
    module = thing if inspect.ismodule(thing) else sys.modules[thing.__module__]
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
