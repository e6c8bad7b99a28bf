import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyhash.data.catalog import Archive
from proxyhash.data.download import download
from proxyhash.utils.errors import InputError

CONTENT = bytes(range(256)) * 12_000  # 3 MB: several reads


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `CONTENT`, as well or as badly as the test asks."""

    ranges = True
    cut_after: int | None = None
    asked: list[str | None] = []  # noqa: RUF012
    body = CONTENT

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        if self.path != "/a.tar.gz":
            self.send_error(404)
            return
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        body = self.body[first:]
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = type(self).cut_after
        type(self).cut_after = None
        self.wfile.write(body if cut is None else body[:cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, value in (("ranges", True), ("cut_after", None), ("asked", []), ("body", CONTENT)):
        monkeypatch.setattr(Handler, name, value)
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def archive_at(server: str, name: str = "a.tar.gz") -> Archive:
    return Archive(f"{server}/{name}", hashlib.md5(CONTENT).hexdigest(), len(CONTENT))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_fresh_download_is_whole_and_heard(server: str, tmp_path: Path) -> None:
    heard: list[tuple[str, float]] = []
    path = tmp_path / "new" / "a.tar.gz"
    download(archive_at(server), path, lambda work, fraction: heard.append((work, fraction)))
    assert path.read_bytes() == CONTENT
    assert files(path.parent) == ["a.tar.gz"]
    assert Handler.asked == [None]
    assert heard[-1] == ("downloading a.tar.gz", 1.0)
    assert len(heard) == 3
    assert heard == sorted(heard)


def test_what_is_there_already_is_not_asked_for_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:1_000_000])
    download(archive_at(server), tmp_path / "a.tar.gz")
    assert Handler.asked == ["bytes=1000000-"]
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT)
    download(archive_at("http://127.0.0.1:9"), tmp_path / "a.tar.gz")
    assert files(tmp_path) == ["a.tar.gz"]


def test_a_file_of_unknown_size_is_known_by_the_beginning_of_its_sha256(server: str, tmp_path: Path) -> None:
    path, sha256 = tmp_path / "a.tar.gz", hashlib.sha256(CONTENT).hexdigest()
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:1_000_000])
    download(Archive(f"{server}/a.tar.gz", "", sha256=sha256[:8]), path)
    assert (Handler.asked, path.read_bytes()) == (["bytes=1000000-"], CONTENT)
    path.unlink()
    with pytest.raises(InputError, match="has the wrong checksum and was deleted"):
        download(Archive(f"{server}/a.tar.gz", "", sha256="0" * 8), path)


def test_a_server_that_cannot_continue_sends_all(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "ranges", False)
    (tmp_path / "a.tar.gz.part").write_bytes(b"old" * 1000)
    download(archive_at(server), tmp_path / "a.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


def test_a_cut_connection_is_continued_by_the_same_command(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "cut_after", 2_000_000)
    with pytest.raises(InputError, match="the same command continues where it stopped"):
        download(archive_at(server), tmp_path / "a.tar.gz")
    assert files(tmp_path) == ["a.tar.gz.part"]
    assert (tmp_path / "a.tar.gz.part").read_bytes() == CONTENT[:2_000_000]
    download(archive_at(server), tmp_path / "a.tar.gz")
    assert Handler.asked == [None, "bytes=2000000-"]
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("change", ["a byte", "too long", "endless"])
def test_a_wrong_checksum_leaves_nothing(change: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = CONTENT + b"x" * (1 if change == "too long" else 5 << 20)
    monkeypatch.setattr(Handler, "body", b"X" + CONTENT[1:] if change == "a byte" else longer)
    with pytest.raises(InputError, match="has the wrong checksum and was deleted"):
        download(archive_at(server), tmp_path / "a.tar.gz")
    assert files(tmp_path) == []


def test_a_missing_page_is_a_sentence(server: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/b could not be downloaded \(the server answers 404 Not Found\)\.$"):
        download(archive_at(server, "b"), tmp_path / "a.tar.gz")
    assert files(tmp_path) == []


def test_no_server_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(InputError, match=r"could not be downloaded \(Connection refused\)\.$"):
        download(archive_at("http://127.0.0.1:9"), tmp_path / "a.tar.gz")


def test_a_place_that_cannot_be_written_is_a_sentence(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write"):
        download(archive_at(server), tmp_path / "file" / "a.tar.gz")
