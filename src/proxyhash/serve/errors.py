"""Errors of the service that are not errors of the request."""


class BusyError(Exception):
    """A request that may succeed when it is sent again; the message is one sentence.

    Attributes
    ----------
    retry_after
        Seconds after which it should be sent again.

    Examples
    --------
    >>> BusyError().retry_after
    1
    """

    def __init__(self, message: str = "The service is busy; try again in a moment.", *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after
