"""Parameter types shared by the commands."""

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from proxyhash.models.device import check_device_name
from proxyhash.utils.errors import InputError

Flag = Parameter(negative=())
"""A boolean option without a --no- form: `Annotated[bool, Flag]`."""

Json = Annotated[bool, Parameter(name="--json", negative=())]
"""The option --json."""


def _parse_int(_: type, tokens: Sequence[Token]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise InputError(f"it must be a whole number, not {tokens[0].value}.") from None


def _parse_device(_: type, tokens: Sequence[Token]) -> str:
    return check_device_name(tokens[0].value)


Device = Annotated[str, Parameter(converter=_parse_device)]
"""The name of a device. `find_device` finds the device itself, where a model is loaded, so that torch loads only then."""

Int = Annotated[int, Parameter(converter=_parse_int)]
"""An integer. Cyclopts would round 2.5 to 2; here it is an error."""


RefinementKind = Literal["code", "code256", "int8", "int8x256"]
"""The kind of a refinement, see `proxyhash.index.refinement`."""


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return names with commas between them."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def split_ints(option: str, text: str | None) -> tuple[int, ...] | None:
    """Return whole numbers with commas between them; the message names the option."""
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--{option} takes whole numbers with commas between them, such as 16,32,64, not {text}.") from None
