"""Errors and warnings for users."""


class InputError(ValueError):
    """Invalid input; the message is one sentence with the reason.

    >>> from proxyhash import design_proxies
    >>> design_proxies(classes=1, bits=8)
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: classes must be at least 2, not 1.
    """


class DamagedError(InputError):
    """A file that does not match its checksums, or lacks a part; the message says how to go on.

    >>> isinstance(DamagedError("model/config.json is damaged."), InputError)
    True
    """


class ProxyhashWarning(UserWarning):
    """A valid result that is probably not the one wanted; the message is one sentence with the reason.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ProxyhashWarning)
    """
