import doctest
import inspect

import proxyhash
from proxyhash.proxies import design

PUBLIC = {
    "Index": None,
    "InputError": None,
    "ProxySet": "(weights, kind, seed, quality)",
    "ProxyhashWarning": None,
    "class_mean_similarity": "(features, labels)",
    "design_proxies": (
        "(classes, bits, kind, similarity, seed, *, tammes_restarts, rotation_restarts, solver, floor, threads, progress)"
    ),
    "list_kinds": "()",
    "tag_similarity": "(tags)",
}


def test_the_public_names_are_these() -> None:
    assert set(proxyhash.__all__) == set(PUBLIC)


def test_their_parameters_keep_their_names_and_order() -> None:
    for name, expected in PUBLIC.items():
        if expected:
            parameters = inspect.signature(getattr(proxyhash, name)).parameters.values()
            keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
            words = positional + (["*", *keyword_only] if keyword_only else [])
            assert f"({', '.join(words)})" == expected


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(design)
    assert result.attempted > 0
    assert result.failed == 0
