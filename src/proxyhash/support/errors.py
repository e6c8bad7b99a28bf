"""The errors and warnings a person is meant to read."""


class InputError(ValueError):
    """Something the caller gave cannot be used; the message is one sentence that says what and why."""


class ProxyhashWarning(UserWarning):
    """The result is valid but probably not what was wanted; the message is one sentence that says why."""
