"""Answers and refusals, apart from what they are about."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxyhash.serve.messages import ErrorAnswer

JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """What goes back to a client."""

    body: bytes
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusalError(Exception):
    """A request that is not answered as it wished; the client reads the sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> Answer:
        """Return it as JSON."""
        return Answer(msgspec.json.encode(ErrorAnswer(str(self))), self.status, JSON, self.headers)


def busy(sentence: str = "The service has more to do than it can keep up with; ask again in a moment.") -> RefusalError:
    """Return the refusal of a request that may be sent again."""
    return RefusalError(503, sentence, Retry_After="1")
