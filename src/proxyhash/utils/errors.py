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


class MissingPackageError(InputError):
    """A package that is not installed; the message says how to install it.

    >>> isinstance(MissingPackageError("This needs torch; run pip install 'proxyhash[train]'."), InputError)
    True
    """


class KeyNotFoundError(InputError):
    """A key that no item of an index has; the message names it.

    >>> isinstance(KeyNotFoundError("The index has no item cats/7.jpg."), InputError)
    True
    """


class IndexChangedError(InputError):
    """An index that was replaced or moved to another model during a call, which can be repeated.

    >>> isinstance(IndexChangedError("photos.index was replaced by another index; run it again."), InputError)
    True
    """


class FilterError(InputError):
    """A filter that is no expression, or does not fit the columns of an index; the message says what is wrong with it.

    >>> isinstance(FilterError("The index has no column yaer; did you mean year?"), InputError)
    True
    """


class ProxyhashWarning(UserWarning):
    """A valid result that is probably not the one wanted; the message is one sentence with the reason.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ProxyhashWarning)
    """
