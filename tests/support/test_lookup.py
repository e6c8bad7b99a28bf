import pytest

from proxyhash.support.errors import InputError
from proxyhash.support.lookup import look_up


def test_a_known_name_is_found_and_an_unknown_one_answered() -> None:
    known = {"small": 1, "photo": 2}
    assert look_up("transform", "photo", known) == 2
    with pytest.raises(InputError, match=r"^There is no transform 'smal'; did you mean small\?$"):
        look_up("transform", "smal", known)
    with pytest.raises(InputError, match=r"^There is no transform 'xyz'; choose from small, photo\.$"):
        look_up("transform", "xyz", known)
