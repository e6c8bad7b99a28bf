"""A real Milvus server: the same answers, and nothing lost or doubled when it dies in the middle of an add."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.codes import make_keys
from helpers.milvus_checks import check_same_matches, unique_name
from helpers.milvus_server import Server
from proxyhash import Index
from proxyhash.index.milvus import rows
from proxyhash.utils.errors import InputError

# The package that brings the server leaves sockets to the garbage collector when a port is taken.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
pytest.importorskip("pymilvus", reason="needs: pip install 'proxyhash[milvus]'")
pytest.importorskip("milvus", reason="the server comes with: pip install milvus==2.3.5")

ITEMS = 60_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("milvus")) as running:
        yield running


@pytest.mark.parametrize(("bits", "items", "k"), [(64, 500, 10), (37, 90, 30), (8, 40, 100)])
def test_same_codes_give_the_same_matches(server: Server, bits: int, items: int, k: int) -> None:
    check_same_matches(server.address, bits, items, k, seed=bits)


def test_items_are_listed_in_the_order_of_keys(server: Server) -> None:
    keys, order = make_keys(5000), np.random.default_rng(0).permutation(5000)
    with Index.open(f"{server.address}/{unique_name()}", bits=64) as index:
        for part in (order[:3000], order[3000:]):
            index.add(np.zeros((len(part), 8), np.uint8), [keys[number] for number in part])
        assert [item.key for item in index.list_items(limit=4500)] == keys[:4500]
        assert [item.key for item in index.list_items(keys[4499])] == keys[4500:4600]
        assert len({item.key for item in index.sample_items(50)}) == 50


def test_search_by_label_and_column(server: Server) -> None:
    code = np.zeros((1, 8), np.uint8)
    with Index.open(f"{server.address}/{unique_name()}", bits=64) as index:
        columns = {"year": [2019, 2021, None]}
        index.add(np.zeros((3, 8), np.uint8), ["a", "b", "c"], ["cat", ("cat", "it's"), "dog"], columns=columns)
        assert sorted(index.search(code, labels="cat")[0].keys) == ["a", "b"]
        assert index.search(code, where="label == 'cat' and year > 2020")[0].keys == ["b"]
        other = """label in ("it's", 'dog') and not year == 2021"""
        assert index.search(code, where=other)[0].keys == ["c"]


def test_range_search_lists_more_than_one_request_returns(server: Server) -> None:
    codes, keys = np.random.default_rng(0).integers(0, 256, (20_000, 8), dtype=np.uint8), make_keys(20_000)
    with Index.open(f"{server.address}/{unique_name()}", bits=64) as index:
        index.add(codes, keys)
        found = index.range_search(codes[:1], 64)[0]
    assert sorted(found.keys) == keys
    assert [match.distance for match in found] == sorted(match.distance for match in found)


def test_databases_separate_collections(server: Server) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(f"http://127.0.0.1:{server.port}", dedicated=True)
    client.create_database("others")
    client.close()
    name, codes = unique_name(), np.array([[1], [3]], np.uint8)
    with Index.open(f"{server.address}/others/{name}", bits=8) as index:
        index.add(codes, ["a", "b"])
        assert index.search(codes[1:], 1)[0].keys == ["b"]
    with pytest.raises(InputError, match=f"There is no index at {server.address}/{name}"):
        Index.open(f"{server.address}/{name}")
    with pytest.raises(InputError, match=r"/absent/photos failed: database.*absent not found"):
        Index.open(f"{server.address}/absent/photos", bits=8)


def test_server_killed_during_an_add_loses_and_doubles_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_ROWS", 500)
    codes, keys = np.random.default_rng(1).integers(0, 256, (ITEMS, 8), dtype=np.uint8), make_keys(ITEMS)
    errors: list[BaseException] = []
    with Index.open(f"{server.address}/{unique_name()}", bits=64) as index:

        def add() -> None:
            try:
                index.add(codes, keys)
            except BaseException as error:
                errors.append(error)

        writer = threading.Thread(target=add)
        writer.start()
        while len(index) < ITEMS // 10:
            time.sleep(0.05)
        server.kill()
        assert writer.is_alive()
        time.sleep(2)
        assert writer.is_alive()  # it waits for the server
        server.start()
        writer.join(timeout=300)
        assert not errors
        assert not writer.is_alive()
        assert len(index) == ITEMS
        found = index.range_search(codes[:1], 64)[0]
        assert sorted(found.keys) == keys  # each once
        for first in range(0, ITEMS, 997):
            assert np.array_equal(index.code(keys[first]), codes[first : first + 1])
