"""Index on Milvus, by milvus-lite: the same engine in a file."""

import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.codes import clustered_codes, make_keys
from helpers.filters import expressions, keeps, to_text
from helpers.milvus_checks import check_same_matches, unique_name
from helpers.models import load_encoder, make_vector_model
from proxyhash import Index
from proxyhash.cli.app import main
from proxyhash.columns import ColumnType
from proxyhash.data import SkippedItems
from proxyhash.data.vectors import read_vectors
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.milvus import index as milvus_index
from proxyhash.index.milvus import retry, rows, search
from proxyhash.index.milvus.collection import CollectionMeta
from proxyhash.index.milvus.index import MilvusIndex
from proxyhash.index.milvus.location import is_milvus, parse_location
from proxyhash.index.results import Match
from proxyhash.index.vector_sync import add_vectors
from proxyhash.index.where.expression import Expression
from proxyhash.utils.errors import InputError, KeyNotFoundError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # milvus-lite reads its version by way of pkg_resources
    pymilvus = pytest.importorskip("pymilvus", reason="needs: pip install 'proxyhash[milvus]'")
    pytest.importorskip("milvus_lite", reason="needs: pip install 'proxyhash[milvus-lite]'")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return where collections can be made; one connection stays open, for the engine stops with the last."""
    address = f"milvus-lite://{tmp_path_factory.mktemp('milvus')}/test.db"
    with Index.open(f"{address}/first", bits=8):
        yield address


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep models in a cache of our own."""
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def index(file: str) -> Iterator[MilvusIndex]:
    with MilvusIndex.open_address(f"{file}/{unique_name()}", bits=32) as opened:
        yield opened


@given(st.integers(1, 70), st.integers(1, 120), st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_same_codes_give_the_same_matches(file: str, bits: int, items: int, k: int, seed: int) -> None:
    check_same_matches(file, bits, items, k, seed)


def test_adding_twice_is_adding_once(index: MilvusIndex) -> None:
    codes, keys = clustered_codes(300, 4, 1), make_keys(300)
    first, second = index.add(codes, keys, ["a"] * 300), index.add(codes[:40], keys[:40], ["b"] * 40)
    assert (first.added, first.replaced, second.added, second.replaced) == (300, 0, 0, 40)
    assert len(index) == 300
    assert (index.item(keys[0]).labels, index.item(keys[299]).labels) == (("b",), ("a",))


def test_vectors_are_encoded_by_the_client(file: str, tmp_path: Path) -> None:
    model, vectors = make_vector_model(12, 32, 0, tmp_path / "encoder"), np.eye(12, dtype=np.float32)
    np.save(tmp_path / "v.npy", vectors)
    content = read_vectors(tmp_path / "v.npy")
    address = f"{file}/{unique_name()}"
    with Index.open(address, model=model) as index:
        assert add_vectors(index, content).added == 12
        assert add_vectors(index, content).replaced == 12
        np.testing.assert_array_equal(index.code("v.npy:3"), load_encoder(model).encode(vectors[3:4]))
        assert index.item("v.npy:3").path is None
        with pytest.raises(InputError, match="stores codes only"):
            add_vectors(index, content, keep_vectors=True)
        with pytest.raises(InputError, match="stores codes only"):
            index.add(vectors, make_keys(12), keep_vectors=True)
        with pytest.raises(InputError, match="leave --prune out"):
            add_vectors(index, content, prune=True)
    with Index.open(address) as index:
        assert (index.input, index.width, index.info().width) == ("vector", 12, 12)
        assert index.search(vectors[5:6], 1)[0][0].distance == 0


def test_any_text_is_a_key_and_a_label(index: MilvusIndex) -> None:
    keys = ["it's", 'say "hi"', "back\\slash", "ünï ☃", "50%", "%25", "a\nb", "{x}", "' or key like '%", "x" * 1300]
    codes = clustered_codes(len(keys), 4, 2)
    index.add(codes, keys, [(key, "plain") for key in keys])
    for key, code in zip(keys, codes, strict=True):
        assert np.array_equal(index.code(key), code[None])
        assert index.item(key).labels == (key, "plain")
    assert sorted(index.range_search(codes[:1], 32)[0].keys) == sorted(keys)
    assert index.remove(keys[:4]) == 4
    assert len(index) == len(keys) - 4


LABELS_TO_FIND = [
    "cat",
    "50%",
    "5_0",
    "a\\b",
    'say "hi"',
    "hi",
    "it's",
    "ünï ☃",
    "a\nb",
    "{x}",
    "%25",
    "[x]",
    "x\\",
    "\t",
    "a, b",
    "all",
    "no",
]


@pytest.fixture(params=[True, False], ids=["new", "old"])
def has_columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Make new collections as this release does, or as release 0.2 did."""
    monkeypatch.setattr(milvus_index, "_new_meta", lambda *_: CollectionMeta(32, None, has_columns=request.param))
    return bool(request.param)


@pytest.mark.usefixtures("has_columns")
@pytest.mark.parametrize("label", LABELS_TO_FIND)
def test_labels_are_filtered_as_in_a_local_index(file: str, tmp_path: Path, label: str) -> None:
    labels = [
        ("cat", "all"), ("all", "cat"), ("cats",), ("50%",), ("500",), ("5_0", "all"), ("510",), ("a\\b",), ('say "hi"',),
        ("it's",), ("ünï ☃", "all", "cat"), ("a\nb",), ("{x}",), ("%25",), ("[x]",), ("x\\", "all"), ("\t",),
        ("a, b",), (), ('"hi',),
    ]  # fmt: skip
    codes = clustered_codes(len(labels), 4, 7)
    with Index.open(tmp_path / "i", bits=32) as local, Index.open(f"{file}/{unique_name()}", bits=32) as milvus:
        for index in (local, milvus):
            index.add(codes, make_keys(len(labels)), labels)
        for wanted in (label, [label, "500"]):
            ours, theirs = (index.range_search(codes[:2], 32, labels=wanted) for index in (local, milvus))
            assert [set(matches.keys) for matches in ours] == [set(matches.keys) for matches in theirs]
            nearest = milvus.search(codes[:2], 1, labels=wanted)
            assert [[match.distance for match in matches[:1]] for matches in ours] == [
                [match.distance for match in matches] for matches in nearest
            ]


def test_filtered_range_search_lists_more_than_one_request_returns(
    index: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add(clustered_codes(100, 4, 4), make_keys(100), ["odd" if number % 2 else "even" for number in range(100)])
    monkeypatch.setattr(search, "MAX_RESULTS", 16)
    assert sorted(index.range_search(clustered_codes(1, 4, 5), 32, labels="odd")[0].keys) == make_keys(100)[1::2]


def test_collection_of_an_older_release_has_labels_only(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{file}/{unique_name()}"
    monkeypatch.setattr(milvus_index, "_new_meta", lambda *_: CollectionMeta(32, None, has_columns=False))
    with MilvusIndex.open_address(address, bits=32) as index:
        index.add(clustered_codes(2, 4, 5), ["a", "b"], ["cat", "dog"])
    with MilvusIndex.open_address(address) as index:
        assert (index.meta.has_columns, index.columns, index.item("a").columns) == (False, {}, {})
        assert index.search(clustered_codes(1, 4, 5), labels="cat")[0].keys == ["a"]
        with pytest.raises(InputError, match="Milvus cannot search for the label ', '"):
            index.search(clustered_codes(1, 4, 5), labels=", ")
        with pytest.raises(InputError, match="has labels only; export it"):
            index.search(clustered_codes(1, 4, 5), where="label != 'cat'")
        with pytest.raises(InputError, match="cannot hold columns; export it"):
            index.add(clustered_codes(1, 4, 5), ["c"], columns={"year": [1]})


ROWS: list[dict[str, Any]] = [
    {"label": labels, "year": year, "the title": title, "day": day}
    for labels, year, title, day in [
        (("cat",), 2020, "cat", None),
        (("cat", "dog"), 2020.5, "it's", datetime(2024, 5, 31, tzinfo=UTC)),
        ((), None, None, None),
        (("é%_\\",), -1, "", datetime(1970, 1, 1, tzinfo=UTC)),
        (('a "cat', "🐈"), 2**31, 'a "cat', datetime(2030, 1, 1, 12, 30, tzinfo=UTC)),
        (("zebra",), 0, "🐈", datetime(1960, 1, 1, tzinfo=UTC)),
        ((), 256, None, datetime(2024, 5, 31, 12, 30, tzinfo=UTC)),
    ]
]
TYPES: dict[str, ColumnType] = {"year": "number", "the title": "text", "day": "date"}


@pytest.fixture(scope="module")
def filtered(file: str) -> Iterator[MilvusIndex]:
    """Return a collection of items with labels and columns, some of which are missing."""
    with MilvusIndex.open_address(f"{file}/{unique_name()}", bits=32) as index:
        columns = {name: [row[name] for row in ROWS] for name in TYPES}
        index.add(clustered_codes(len(ROWS), 4, 0), make_keys(len(ROWS)), [row["label"] for row in ROWS], columns=columns)
        yield index


@settings(max_examples=60, deadline=None)
@given(expression=expressions(TYPES))
def test_filters_keep_what_the_reference_keeps(filtered: MilvusIndex, expression: Expression) -> None:
    expected = [
        key for key, row in zip(make_keys(len(ROWS)), ROWS, strict=True) if keeps(expression, row["label"], row, TYPES)
    ]
    assert sorted(filtered.range_search(clustered_codes(1, 4, 1), 32, where=to_text(expression))[0].keys) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [("key in ('item/00001', 'no')", [1]), ("not key == 'item/00001' and year > 0 and year < 3000", [0, 6])],
)
def test_keys_are_filtered(filtered: MilvusIndex, where: str, expected: list[int]) -> None:
    found = filtered.search(clustered_codes(1, 4, 1), 100, where=where)[0]
    assert sorted(found.keys) == [make_keys(9)[number] for number in expected]


def test_columns_are_returned_and_exported(filtered: MilvusIndex, tmp_path: Path) -> None:
    assert filtered.columns == filtered.info().columns == dict(sorted(TYPES.items()))
    known = [{name: row[name] for name in TYPES if row[name] is not None} for row in ROWS]
    assert [item.columns for item in filtered.list_items()] == known
    assert filtered.item("item/00001").columns == known[1]
    assert {match.key: match.columns for match in filtered.search(clustered_codes(1, 4, 1), 100)[0]} == dict(
        zip(make_keys(len(ROWS)), known, strict=True)
    )
    filtered.export_file(tmp_path / "a.parquet")
    with Index.open(tmp_path / "i", bits=32) as local:
        local.import_file(tmp_path / "a.parquet")
        assert [item.columns for item in local.list_items()] == known


def test_item_with_too_many_attributes_is_refused(index: MilvusIndex) -> None:
    with pytest.raises(InputError, match="The labels and columns of a have more than 65,535 bytes"):
        index.add(clustered_codes(1, 4, 0), ["a"], columns={"t": ["é" * 20_000]})


def test_items_are_listed_in_the_order_of_keys(index: MilvusIndex) -> None:
    keys = make_keys(50)
    order = np.random.default_rng(0).permutation(50)
    for part in (order[:30], order[30:]):
        index.add(clustered_codes(len(part), 4, 0), [keys[number] for number in part])
    first = index.list_items(limit=20)
    rest = index.list_items(first[-1].key)
    assert [item.key for item in first + rest] == keys
    assert [item.key for item in index.list_items("item/00047.5")] == keys[48:]
    assert index.list_items(keys[-1]) == []


def test_sample_has_distinct_items(index: MilvusIndex) -> None:
    assert index.sample_items(3) == []
    index.add(clustered_codes(30, 4, 0), make_keys(30), ["a"] * 30)
    assert len({item.key for item in index.sample_items(7)}) == 7
    assert sorted(item.key for item in index.sample_items(99)) == make_keys(30)
    assert index.sample_items(1)[0].labels == ("a",)


def test_unknown_key_is_an_error_of_its_own(index: MilvusIndex) -> None:
    for ask in (index.item, index.code, index.remove):
        with pytest.raises(KeyNotFoundError, match="The index has no item nope"):
            ask("nope")


def test_items_know_their_folder(file: str, model: Path, photos: Path) -> None:
    with Index.open(f"{file}/{unique_name()}", model=model) as opened:
        add_folder(opened, photos / "cats", SkippedItems(), prefix="more/")
        item = opened.list_items(limit=1)[0]
        assert (item.root, item.path) == (photos / "cats", photos / "cats" / item.key.removeprefix("more/"))
        opened.add(sorted(photos.rglob("*.png"))[:1], ["a file without a folder"])
        assert opened.item("a file without a folder").root is None


def test_removing_is_all_or_nothing(index: MilvusIndex) -> None:
    index.add(clustered_codes(5, 4, 3), make_keys(5))
    with pytest.raises(InputError, match="no item x and 1 more; nothing was removed"):
        index.remove([*make_keys(2), "x", "y"])
    assert len(index) == 5
    assert index.remove(make_keys(2)) == 2
    (found,) = index.search(clustered_codes(1, 4, 3), 10)
    assert sorted(match.key for match in found) == make_keys(3, 2)


def test_range_search_lists_more_than_one_request_returns(index: MilvusIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, keys = clustered_codes(500, 4, 4), make_keys(500)
    index.add(codes, keys)
    monkeypatch.setattr(search, "MAX_RESULTS", 16)
    found = index.range_search(codes[:2], 32)
    assert [sorted(matches.keys) for matches in found] == [keys, keys]
    distances = [match.distance for match in found[0]]
    assert distances == sorted(distances)
    with pytest.raises(InputError, match="at most 16 items"):
        index.search(codes[:1], 17)


def test_requests_carry_a_limited_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_ROWS", 10)
    monkeypatch.setattr(rows, "BATCH_BYTES", 400)
    stored = rows.make_rows(np.zeros((30, 4), np.uint8), make_keys(30), ["", "x" * 90] + [None] * 28, range(30))
    parts = list(stored.batches())
    assert [number for part in parts for number in range(part.start, part.stop)] == list(range(30))
    assert parts[0] == slice(0, 1)  # the second is larger than a request
    assert parts[1] == slice(1, 2)
    assert all(part.stop - part.start <= 10 for part in parts)


@pytest.mark.parametrize("name", ["key", "id"])
def test_key_of_a_hit_is_read_under_either_name(name: str) -> None:
    from pymilvus.client.search_result import HybridHits
    from pymilvus.grpc_gen import schema_pb2

    item_id = schema_pb2.FieldData(field_name="position", type=schema_pb2.Int64)
    item_id.scalars.long_data.data.extend([7, 5])
    labels = schema_pb2.FieldData(field_name="labels", type=schema_pb2.VarChar)
    labels.scalars.string_data.data.extend(['["cat"]', ""])
    file = schema_pb2.FieldData(field_name="file", type=schema_pb2.VarChar)
    file.scalars.string_data.data.extend(["digest 10 20 /photos/a b.png", ""])
    fields = ["position", "labels", "file"]
    hits = HybridHits(0, 2, ["a%25", "b"], [3.0, 4.0], [item_id, labels, file], fields, [], name)
    assert search.parse_hits(hits) == [
        Match("a%", 3, 7, ("cat",), path=Path("/photos/a b.png")),
        Match("b", 4, 5, ()),
    ]


def test_write_with_a_lost_response_is_repeated_and_counted_once(
    index: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = index.client._get_connection()
    real = handler.upsert
    calls: list[int] = []
    pauses: list[float] = []

    def unreliable(*given: Any, **named: Any) -> Any:
        calls.append(len(given[1][0]["values"]))
        answer = real(*given, **named)
        if len(calls) % 2:  # it was done, but nobody hears of it
            raise pymilvus.exceptions.MilvusException(code=2, message="gone")
        return answer

    monkeypatch.setattr(handler, "upsert", unreliable)
    monkeypatch.setattr(index.client, "_get_connection", lambda: handler)
    monkeypatch.setattr(rows, "BATCH_ROWS", 20)
    monkeypatch.setattr(retry.call_with_retry, "__kwdefaults__", {"retry_seconds": 300.0, "sleep": pauses.append})
    codes, keys = clustered_codes(50, 4, 5), make_keys(50)
    assert index.add(codes, keys).added == 50
    assert calls == [20, 20, 20, 20, 10, 10]
    assert len(pauses) == 3
    assert sorted(index.range_search(codes[:1], 32)[0].keys) == keys


def test_pauses_grow_and_end() -> None:
    pauses: list[float] = []
    answers = iter([pymilvus.exceptions.MilvusException(code=103, message="loading")] * 9)

    def ask() -> str:
        for error in answers:
            raise error
        return "answer"

    assert retry.call_with_retry(ask, "there", sleep=pauses.append) == "answer"
    assert len(pauses) == 9
    limits = [min(0.1 * 2**turn, 5.0) for turn in range(9)]
    assert all(0.5 * limit <= pause <= 1.5 * limit for pause, limit in zip(pauses, limits, strict=True))


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (lambda: pymilvus.exceptions.MilvusException(code=1100, message="bad\nfilter."), False),
        (lambda: pymilvus.exceptions.MilvusException(code=2, message="away"), True),
        (lambda: ConnectionRefusedError("refused"), False),
    ],
)
def test_server_errors_become_input_errors(error: Any, lasting: bool) -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise error()

    with pytest.raises(InputError, match=r"^Milvus at there failed: [^\n]*[a-z]\.$"):
        retry.call_with_retry(ask, "there", retry_seconds=0.02 if lasting else 300.0)
    assert (len(asked) > 1) == lasting


def test_other_errors_are_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        retry.call_with_retry(lambda: 1 // 0, "there")


def test_an_index_keeps_its_bits_and_its_model(file: str, model: Path, other_model: Path, photos: Path) -> None:
    address = f"{file}/{unique_name()}"
    with pytest.raises(InputError, match="There is no index at"):
        Index.open(address)
    pictures = sorted(photos.rglob("*.png"))
    with Index.open(address, model=model) as opened:
        assert opened.add(pictures[:4]).added == 4
    with Index.open(address) as opened:  # the model was kept on this machine
        assert opened.search(pictures[1], 1, rerank=3)[0][0].key == str(pictures[1])
    with pytest.raises(InputError, match="another model"):
        Index.open(address, model=other_model)
    with pytest.raises(InputError, match="32 bits, not 64"):
        Index.open(address, bits=64)


def test_missing_model_is_asked_for(
    file: str, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{file}/{unique_name()}"
    Index.open(address, model=model).close()
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "another machine"))
    with Index.open(address) as opened, pytest.raises(InputError, match="not on this machine; give --model"):
        opened.search(next(photos.rglob("*.png")))


def test_foreign_collections_are_refused(file: str) -> None:
    name = unique_name()
    with Index.open(f"{file}/first") as opened:
        assert isinstance(opened, MilvusIndex)
        opened.client.create_collection(name, dimension=4)
    with pytest.raises(InputError, match="not an index of proxyhash"):
        Index.open(f"{file}/{name}", bits=8)


def test_folder_is_added_searched_and_pruned_by_the_command_line(
    file: str, model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{file}/{unique_name()}"
    main(["index", "add", str(photos), "--model", str(model), "--index", address])
    assert f"12 added, 0 replaced, 0 unchanged, 0 removed. {address} holds 12 items." in capsys.readouterr().out
    (photos / "cats" / "1.png").unlink()
    (photos / "dogs" / "9.png").write_bytes((photos / "dogs" / "8.png").read_bytes())
    main(["index", "add", str(photos), "--index", address, "--prune"])
    assert "0 added, 1 replaced, 10 unchanged, 1 removed" in capsys.readouterr().out
    main(["search", address, str(photos / "dogs" / "8.png"), "--radius", "0", "--show", str(tmp_path / "found.png")])
    assert {"dogs/8.png", "dogs/9.png"} <= set(capsys.readouterr().out.split())
    assert (tmp_path / "found.png").is_file()
    main(["index", "remove", address, "dogs/9.png"])
    assert "holds 10 items" in capsys.readouterr().out
    main(["search", address, "--key", "dogs/8.png", "-k", "1"])
    assert "dogs/8.png" in capsys.readouterr().out
    main(["index", "info", address])
    assert "BIN_FLAT, Strong consistency" in capsys.readouterr().out
    for command in ("verify", "compact", "duplicates"):
        with pytest.raises(SystemExit):
            main(["index", command, address])
        assert "on a server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "uri", "collection", "database", "consistency"),
    [
        ("milvus://host/photos", "http://host:19530", "photos", "", "Strong"),
        ("milvus://10.0.0.7:99/photos", "http://10.0.0.7:99", "photos", "", "Strong"),
        ("milvus://h:1/db/photos?consistency=Bounded", "http://h:1", "photos", "db", "Bounded"),
        ("milvus://[::1]:5/photos?tls=yes", "https://[::1]:5", "photos", "", "Strong"),
    ],
)
def test_addresses_are_parsed(text: str, uri: str, collection: str, database: str, consistency: str) -> None:
    location = parse_location(text)
    assert (location.uri, location.collection, location.database, location.consistency) == (
        uri,
        collection,
        database,
        consistency,
    )


@pytest.mark.parametrize(
    "text",
    ["milvus://", "milvus://host", "milvus://host/a/b/c", "milvus://host/a-b", "milvus://host:x/a", "milvus://h/a?x=1",
     "milvus://h/a?consistency=Weak", "milvus-lite://file/a", "milvus-lite:///no/such/folder/file.db/a"],
)  # fmt: skip
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*\.$"):
        parse_location(text)


def test_folders_are_not_addresses(tmp_path: Path) -> None:
    assert not is_milvus(str(tmp_path))
    assert not is_milvus(Path("milvus://host/photos"))


def test_missing_server_or_client_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.index.milvus.collection.CONNECT_TIMEOUT", 0.5)
    with pytest.raises(InputError, match=r"^Cannot connect to milvus://127\.0\.0\.1:9/photos: "):
        Index.open("milvus://127.0.0.1:9/photos", bits=8)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(InputError, match=r"pip install 'proxyhash\[milvus\]'\.$"):
        Index.open("milvus://127.0.0.1:9/photos", bits=8)


def test_collection_is_exported_and_imported(file: str, index: MilvusIndex, tmp_path: Path) -> None:
    keys = ["a\nb", "Käse/π.jpg", *make_keys(5000)]
    index.add(clustered_codes(5002, 4, 0), keys, [("cat", "tame"), None, *["dog"] * 5000])
    for format in ("faiss", "parquet"):
        assert index.export_file(tmp_path / f"out.{format}") == 5002
        with Index.open(tmp_path / format, bits=32) as local:
            assert local.import_file(tmp_path / f"out.{format}").added == 5002
            assert {item.key: item.labels for item in local.list_items(limit=6000)} == {
                item.key: item.labels for item in index.list_items(limit=6000)
            }
            assert all((local.code(key) == index.code(key)).all() for key in keys[:20])
    with Index.open(f"{file}/{unique_name()}", bits=32) as other:
        assert other.import_file(tmp_path / "out.faiss").added == 5002
        assert other.item("a\nb").labels == ("cat", "tame")
