"""A local stub of the Hugging Face Hub: the part of its HTTP API that pushes to and fetches from model repositories."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_" + "a" * 34

Files = dict[str, bytes]


@dataclass
class HubStub:
    """Repositories by name, each a list of commits: (40 digits, files)."""

    url: str = ""
    repositories: dict[str, list[tuple[str, Files]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def head(self, repository: str) -> tuple[str, Files]:
        return self.repositories[repository][-1]

    def commit(self, repository: str, files: Files) -> str:
        number = hashlib.sha1(f"{repository}:{len(self.repositories[repository])}".encode()).hexdigest()
        self.repositories[repository].append((number, files))
        return number

    def find(self, repository: str, revision: str) -> tuple[str, Files] | None:
        commits = self.repositories.get(repository, [])
        if revision == "main" and commits:
            return commits[-1]
        return next((commit for commit in commits if commit[0] == revision), None)


@contextmanager
def running_hub() -> Iterator[HubStub]:
    """Serve an empty hub on a free port."""
    stub = HubStub()
    handler = type("Handler", (_Handler,), {"stub": stub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield stub
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: HubStub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.stub.requests.append(f"POST {self.path}")
        if self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := re.fullmatch(r"/api/models/(.+/.+)/preupload/main", self.path):
            files = [{"path": file["path"]} for file in json.loads(body)["files"]]
            self._json({"files": [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in files]})
        elif found := re.fullmatch(r"/api/models/(.+/.+)/commit/main", self.path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._json({"error": "not found"}, 404)

    def do_GET(self) -> None:
        self.stub.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            self._list(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            self._list(found[1], "revision", "main")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(found[1], found[2], found[3])
        else:
            self._json({"error": "not found"}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _create(self, asked: dict[str, Any]) -> None:
        repository = f"{asked['organization']}/{asked['name']}"
        if repository in self.stub.repositories:
            self._json({"error": "exists already", "url": f"{self.stub.url}/{repository}"}, 409)
            return
        self.stub.repositories[repository] = []
        self.stub.commit(repository, {".gitattributes": b""})
        self._json({"url": f"{self.stub.url}/{repository}"})

    def _commit(self, repository: str, operations: list[dict[str, Any]]) -> None:
        files = dict(self.stub.head(repository)[1])
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        number = self.stub.commit(repository, files)
        self._json({"commitOid": number, "commitUrl": f"{self.stub.url}/{repository}/commit/{number}"})

    def _list(self, repository: str, kind: str, revision: str) -> None:
        commit = self.stub.find(repository, revision)
        if commit is None:
            self._missing("RevisionNotFound" if repository in self.stub.repositories else "RepoNotFound")
        elif kind == "tree":
            self._json(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in commit[1].items()
                ]
            )
        else:
            self._json({"id": repository, "sha": commit[0], "siblings": [{"rfilename": name} for name in commit[1]]})

    def _file(self, repository: str, revision: str, name: str) -> None:
        commit = self.stub.find(repository, revision)
        if commit is None or name not in commit[1]:
            self._missing("EntryNotFound")
            return
        data = commit[1][name]
        self._answer(data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit[0]})

    def _missing(self, code: str) -> None:
        self._answer(b"{}", {"X-Error-Code": code, "X-Error-Message": code}, 404)

    def _json(self, content: Any, status: int = 200) -> None:
        self._answer(json.dumps(content).encode(), {"Content-Type": "application/json"}, status)

    def _answer(self, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass
