"""Results of the parts of a long run, kept until it ends, so that a run that was stopped goes on."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class PartialResults:
    """Results of parts by their names, and the seconds that they took, in a file; those of another commit are dropped."""

    def __init__(self, path: Path, provenance: dict[str, Any]) -> None:
        self._path = path
        self.provenance = provenance
        self._parts: dict[str, dict[str, Any]] = {}
        if path.exists():
            known = json.loads(path.read_text())
            if known["provenance"]["commit"] == provenance["commit"]:
                self.provenance, self._parts = known["provenance"], known["parts"]

    def get(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a part: as it is kept, or computed and kept."""
        if name not in self._parts:
            start = time.monotonic()
            result = work()
            self._parts[name] = {"result": result, "seconds": round(time.monotonic() - start, 1)}
            self._path.write_text(json.dumps({"provenance": self.provenance, "parts": self._parts}))
        return dict(self._parts[name]["result"])

    def finish(self, output: Path, content: dict[str, Any]) -> None:
        """Write the record, and delete the file of parts."""
        seconds = round(sum(part["seconds"] for part in self._parts.values()))
        output.write_text(json.dumps({**self.provenance, **content, "seconds": seconds}, indent=1) + "\n")
        self._path.unlink(missing_ok=True)
