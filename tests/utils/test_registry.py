import pytest

from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import Registry, lookup


def test_unknown_name_is_answered_with_a_suggestion() -> None:
    known = {"small": 1, "photo": 2}
    assert lookup("transform", "photo", known) == 2
    with pytest.raises(InputError, match=r"^There is no transform 'smal'; did you mean small\?$"):
        lookup("transform", "smal", known)
    with pytest.raises(InputError, match=r"^There is no transform 'xyz'; choose from small, photo\.$"):
        lookup("transform", "xyz", known)


def test_registry_keeps_the_order_of_registration_and_refuses_a_taken_name() -> None:
    transforms: Registry[int] = Registry("transform")
    transforms.add("small", 1)
    transforms.add("photo", 2)
    assert list(transforms) == ["small", "photo"]
    assert transforms.find("photo") == 2
    with pytest.raises(InputError, match=r"^There is already a transform 'small'; choose another name\.$"):
        transforms.add("small", 3)
