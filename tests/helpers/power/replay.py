"""States of a disk after a loss of power, computed from a record of file operations."""

import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path, PurePosixPath
from random import Random

SECTOR = 512
_HEAD = struct.Struct("<IIqII")


class Kind(IntEnum):
    """Kinds of operations, as `record.c` numbers them."""

    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    EXTEND = 4
    SYNC = 5
    SYNC_FAILED = 6
    RENAME = 7
    EXCHANGE = 8
    LINK = 9
    UNLINK = 10
    RMDIR = 11
    MKDIR = 12
    SYMLINK = 13
    MARK = 14
    UNSUPPORTED = 15


@dataclass(frozen=True)
class Operation:
    """One line of the record: `first` is data, a path or a text, `second` the second path, or the inode of an open file."""

    kind: Kind
    handle: int
    number: int  # an offset, a size, or flags
    first: bytes
    second: bytes


def read_log(path: Path) -> list[Operation]:
    """Return all operations of a record."""
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        kind, handle, number, size, other = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        found.append(Operation(Kind(kind), handle, number, content[at : at + size], content[at + size : at + size + other]))
        at += size + other
    return found


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: bytes


Tree = dict[PurePosixPath, bytes | Link | None]
"""Content of a folder by relative path: bytes of a file, a link, or None for a folder."""


@dataclass
class Change:
    """A change of a file's content: data at an offset, or a new size."""

    kind: Kind
    number: int
    data: bytes = b""
    is_synced: bool = False
    is_doubtful: bool = False  # an fsync failed since: a later one does not repeat it

    def apply(self, content: bytearray) -> None:
        """Make the change."""
        if self.kind is Kind.WRITE:
            _extend(content, self.number)
            content[self.number : self.number + len(self.data)] = self.data
        elif self.kind is Kind.EXTEND:
            _extend(content, self.number)
        else:
            del content[self.number :]
            _extend(content, self.number)


@dataclass
class File:
    """A file without its name: what is on the disk for certain, and later changes in order."""

    durable: bytearray
    changes: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """Make all changes durable, except those that a failed fsync made doubtful."""
        for change in self.changes:
            change.is_synced = not change.is_doubtful
        while self.changes and self.changes[0].is_synced:
            self.changes.pop(0).apply(self.durable)

    def content(self, choice: str, random: Random) -> bytes:
        """Return a content after a loss of power; `choice` says what happens to changes that are not durable."""
        content = bytearray(self.durable)
        for change in self.changes:
            for part in [change] if change.is_synced else list(_survivors(change, choice, random)):
                part.apply(content)
        return bytes(content)


def _survivors(change: Change, choice: str, random: Random) -> Iterator[Change]:
    """Yield what reaches the disk of one change."""
    is_write, end = change.kind is Kind.WRITE, change.number + len(change.data)
    if choice == "kept" or (choice in ("random", "sectors", "torn") and not is_write and random.random() < 0.5):
        yield change
    elif choice == "zeros":
        yield Change(Kind.EXTEND, end) if is_write else change
    elif choice == "random" and is_write and random.random() < 0.5:
        yield change
    elif choice == "torn" and is_write:
        sectors = range(change.number // SECTOR * SECTOR + SECTOR, end, SECTOR)
        cut = random.choice([change.number, *sectors, end])
        yield Change(Kind.WRITE, change.number, change.data[: cut - change.number])
    elif choice == "sectors" and is_write:
        starts = [change.number, *range(change.number // SECTOR * SECTOR + SECTOR, end, SECTOR)]
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            if random.random() < 0.5:
                yield Change(Kind.WRITE, start, change.data[start - change.number : stop - change.number])


def _extend(content: bytearray, size: int) -> None:
    content.extend(bytes(max(0, size - len(content))))


@dataclass(eq=False)
class Rename:
    """A change of names that happens as a whole: which node each (folder, name) stands for, None for no node."""

    entries: list[tuple[int, str, int | None]]

    @property
    def folders(self) -> set[int]:
        """Return the folders that it changes."""
        return {folder for folder, _, _ in self.entries}

    def apply(self, folders: dict[int, dict[str, int]]) -> None:
        """Make the change."""
        for folder, name, node in self.entries:
            if node is None:
                folders[folder].pop(name, None)
            else:
                folders[folder][name] = node


ROOT = 0


class Disk:
    """Simulated disk below `root`; a journaling one syncs all names with every fsync, a strict one those of one folder."""

    def __init__(self, root: Path, initial: Tree, *, is_journaling: bool) -> None:
        self._root = PurePosixPath(root)
        self._is_journaling = is_journaling
        self._nodes: dict[int, File | Link | None] = {ROOT: None}
        self._now: dict[int, dict[str, int]] = {ROOT: {}}  # names as programs see them
        self._durable: dict[int, dict[str, int]] = {ROOT: {}}
        self._renames: list[Rename] = []  # not durable, in order
        self._handles: dict[int, int] = {}
        self._inodes: dict[int, int] = {}  # nodes by the numbers that the real file system gave them
        for path in sorted(initial):
            content = initial[path]
            node = self._new(File(bytearray(content)) if isinstance(content, bytes) else content)
            folder, name = self._place(path)
            self._now[folder][name] = self._durable[folder][name] = node

    def apply(self, operation: Operation) -> bool:
        """Follow an operation; return whether it changed what a loss of power may leave."""
        kind = operation.kind
        if kind is Kind.UNSUPPORTED:
            raise AssertionError(f"the recorder cannot follow: {operation.first.decode()}")
        if kind is Kind.OPEN:
            return self._open(operation)
        if kind in (Kind.WRITE, Kind.TRUNCATE, Kind.EXTEND):
            self._file(operation.handle).changes.append(Change(kind, operation.number, operation.first))
        elif kind is Kind.SYNC:
            self._sync(operation.handle)
        elif kind is Kind.SYNC_FAILED:
            node = self._nodes[self._handles[operation.handle]]
            for change in node.changes if isinstance(node, File) else ():
                change.is_doubtful = not change.is_synced
        elif kind is not Kind.MARK:
            self._rename(operation)
        return True

    def tree(self, names: str, data: str, random: Random) -> Tree:
        """Return the content after a loss of power now; see `VARIANTS`."""
        count = {"none": 0, "all": len(self._renames)}.get(names)
        kept = self._renames[: random.randint(0, len(self._renames)) if count is None else count]
        folders = {folder: dict(entries) for folder, entries in self._durable.items()}
        for rename in kept:
            rename.apply(folders)
        found: Tree = {}
        waiting = [(PurePosixPath(), ROOT)]
        while waiting:
            path, folder = waiting.pop()
            for name, node in sorted(folders[folder].items()):
                content = self._nodes[node]
                found[path / name] = content.content(data, random) if isinstance(content, File) else content
                if content is None:
                    waiting.append((path / name, node))
        return found

    def _new(self, content: File | Link | None) -> int:
        node = len(self._nodes)
        self._nodes[node] = content
        if content is None:
            self._now[node], self._durable[node] = {}, {}
        return node

    def _place(self, path: PurePosixPath) -> tuple[int, str]:
        """Return the folder of a relative path, and its name there."""
        folder = ROOT
        for part in path.parent.parts:
            folder = self._now[folder][part]
        return folder, path.name

    def _locate(self, path: bytes) -> tuple[int, str]:
        return self._place(PurePosixPath(os.fsdecode(path)).relative_to(self._root))

    def _file(self, handle: int) -> File:
        node = self._nodes[self._handles[handle]]
        assert isinstance(node, File), "a write to something that is no file"
        return node

    def _open(self, operation: Operation) -> bool:
        if PurePosixPath(os.fsdecode(operation.first)) == self._root:
            self._handles[operation.handle] = ROOT
            return False
        folder, name = self._locate(operation.first)
        inode = int.from_bytes(operation.second, "little")
        known = self._inodes.get(inode)
        if known is not None and self._now[folder].get(name) != known:
            self._infer_rename(known, folder, name, is_created=bool(operation.number & os.O_CREAT))
        node = self._now[folder].get(name)
        is_new = node is None
        if node is None:
            assert operation.number & os.O_CREAT, f"{os.fsdecode(operation.first)} came from nowhere"
            node = self._new(File(bytearray()))
            self._change(Rename([(folder, name, node)]))
        self._handles[operation.handle] = self._inodes[inode] = node
        if operation.number & os.O_TRUNC:
            self._file(operation.handle).changes.append(Change(Kind.TRUNCATE, 0))
        return is_new or bool(operation.number & os.O_TRUNC)

    def _infer_rename(self, node: int, folder: int, name: str, *, is_created: bool) -> None:
        """Follow a rename by a direct system call, which is noticed when the file is next opened.

        safetensors renames its own temporary file so. A new file may have the inode of a deleted one.
        """
        places = [(old, each) for old, entries in self._now.items() for each, found in entries.items() if found == node]
        if places:
            self._change(Rename([(*places[0], None), (folder, name, node)]))
        else:
            assert is_created or name in self._now[folder], f"{name} came from nowhere"

    def _change(self, rename: Rename) -> None:
        rename.apply(self._now)
        self._renames.append(rename)

    def _rename(self, operation: Operation) -> None:
        kind = operation.kind
        folder, name = self._locate(operation.first)
        if kind in (Kind.UNLINK, Kind.RMDIR):
            self._change(Rename([(folder, name, None)]))
            return
        if kind in (Kind.MKDIR, Kind.SYMLINK):
            content = None if kind is Kind.MKDIR else Link(operation.second)
            self._change(Rename([(folder, name, self._new(content))]))
            return
        node, (target, new) = self._now[folder][name], self._locate(operation.second)
        if kind is Kind.LINK:
            self._change(Rename([(target, new, node)]))
        elif kind is Kind.EXCHANGE:
            self._change(Rename([(folder, name, self._now[target][new]), (target, new, node)]))
        elif self._now[target].get(new) != node:  # a rename of one name of a file to another one does nothing
            self._change(Rename([(folder, name, None), (target, new, node)]))

    def _sync(self, handle: int) -> None:
        """Sync one file or folder; the handle 0 stands for everything."""
        nodes = list(self._nodes) if handle == 0 else [self._handles[handle]]
        for node in nodes:
            content = self._nodes[node]
            if isinstance(content, File):
                content.sync()
        if self._is_journaling or handle == 0:
            synced = self._renames
        else:
            synced = self._needed_for({node for node in nodes if self._nodes[node] is None})
        for rename in synced:
            rename.apply(self._durable)
        self._renames = [rename for rename in self._renames if rename not in synced]

    def _needed_for(self, folders: set[int]) -> list[Rename]:
        """Return the changes of these folders, and what must happen before them."""
        found: list[Rename] = []
        for rename in reversed(self._renames):
            if rename.folders & folders:
                found.append(rename)
                folders |= rename.folders
        return found[::-1]


VARIANTS = (
    ("none", "lost"),
    ("all", "lost"),
    ("none", "kept"),
    ("all", "kept"),
    ("all", "zeros"),
    ("some", "random"),
    ("some", "torn"),
    ("some", "sectors"),
)
"""What is kept of changes that are not durable: of names, and of data."""


def read_tree(folder: Path) -> Tree:
    """Return the content of a folder, without the shared memory of SQLite."""
    found: Tree = {}
    for path in folder.rglob("*"):
        if path.name.endswith("-shm"):
            continue
        name = PurePosixPath(path.relative_to(folder))
        if path.is_symlink():
            found[name] = Link(os.fsencode(path.readlink()))
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a content to an empty folder."""
    folder.mkdir(parents=True)
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (folder / path).mkdir()
        elif isinstance(content, Link):
            (folder / path).symlink_to(os.fsdecode(content.target))
        else:
            (folder / path).write_bytes(content)


def digest(tree: Tree) -> bytes:
    """Return a checksum of a content."""
    sums = hashlib.sha256()
    for path in sorted(tree):
        content = tree[path]
        data = content if isinstance(content, bytes) else repr(content).encode()
        sums.update(f"{path}:{len(data)}:{content is None};".encode() + data)
    return sums.digest()
