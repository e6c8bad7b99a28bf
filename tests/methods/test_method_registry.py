"""The registry of methods."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from helpers.method_losses import build, small_data
from helpers.plugins import own_registry
from proxyhash.methods import HashingMethod, MethodSettings, build_method, get_method, list_methods, register_method
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import METHOD_TENSORS

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with own_registry():
        yield


def test_docs_list_every_method() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    rows = {tuple(row) for row in cells if len(row) == 6}
    listed = [get_method(name) for name in list_methods()]
    assert rows == {(i.name, i.title, i.family, str(i.year), i.learns_from, i.metric) for i in listed}


def test_methods_are_listed_by_family_and_year() -> None:
    listed = [(get_method(name).family, get_method(name).year or 0) for name in list_methods()]
    assert listed == sorted(listed)
    assert list_methods() == [*list_methods()]
    assert sorted([*list_methods(trains=True), *list_methods(trains=False)]) == sorted(list_methods())


def test_unknown_name_is_answered_with_all_names_in_order() -> None:
    register_method("aaa", learns_from="nothing")(get_method("lsh").fit)  # type: ignore[type-var]  # the last to be registered
    with pytest.raises(InputError, match="choose from aaa, adsh, ") as error:
        get_method("zzz")
    names = str(error.value).removesuffix(".").split("choose from ")[1].split(", ")
    assert names == sorted(list_methods())


def test_a_registered_class_can_be_built() -> None:
    @register_method("center", learns_from="classes")
    class Center(HashingMethod):
        def forward(self, embeddings: torch.Tensor, targets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return embeddings.square().mean()

    assert "center" in list_methods(trains=True)
    assert isinstance(build_method("center", small_data("classes"), {}), Center)
    with pytest.raises(InputError, match=r"center learns from classes and cannot use tags."):
        build_method("center", small_data("tags"), {})


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"There is already a method 'dpsh'; choose another name."):
        register_method("dpsh")(HashingMethod)


def test_a_class_that_is_no_method_is_refused() -> None:
    with pytest.raises(InputError, match="'mine' must be a subclass of HashingMethod, or a function that fits features"):
        register_method("mine")(type("Mine", (), {}))


def test_settings_without_a_dataclass_are_refused() -> None:
    class Settings(MethodSettings):
        margin: float = 1.0

    with pytest.raises(InputError, match="The settings of 'mine' must be a frozen dataclass"):
        register_method("mine", settings=Settings)(HashingMethod)


def test_only_methods_that_train_can_be_built() -> None:
    with pytest.raises(InputError, match="ITQ trains no network; choose from csq, dpn"):
        build_method("itq", small_data("classes"), {})


@pytest.mark.parametrize(("name", "tensor"), [("csq", "centers"), ("dqn", "quantized")])
def test_tensors_of_old_checkpoints_are_loaded(name: str, tensor: str) -> None:
    (old,) = (old for old, new in METHOD_TENSORS.items() if new == tensor)
    method, stored = build(name, bits=8), build(name, bits=8).state_dict()
    stored[old] = torch.ones_like(stored.pop(tensor))
    method.load_state_dict(stored)
    assert (method.get_buffer(tensor) == 1).all()
