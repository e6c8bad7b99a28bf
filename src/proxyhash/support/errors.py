"""The errors and warnings a person is meant to read."""


class InputError(ValueError):
    """Something the caller gave cannot be used; the message is one sentence that says what and why.

    >>> from proxyhash import design_proxies
    >>> design_proxies(classes=1, bits=8)
    Traceback (most recent call last):
    proxyhash.support.errors.InputError: classes must be at least 2, not 1.
    """


class ProxyhashWarning(UserWarning):
    """The result is valid but probably not what was wanted; the message is one sentence that says why.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ProxyhashWarning)  # for who knows
    """
