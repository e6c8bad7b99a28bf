from dataclasses import replace
from pathlib import Path

import pytest

from helpers.datasets import pack_tar, write_cifar
from proxyhash.data import catalog, load_dataset
from proxyhash.data.catalog import CIFAR10, CIFAR100, ILSVRC2012, Archive, DatasetInfo, get_dataset_info, list_datasets
from proxyhash.data.locations import check_files, data_folders, fetch_folder, find_archive, find_folder
from proxyhash.utils.errors import InputError


@pytest.fixture(autouse=True)
def no_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXYHASH_DATA", raising=False)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


def packed(folder: Path) -> DatasetInfo:
    """Put the archive of a miniature CIFAR-10 into a folder."""
    record = write_cifar(folder / "raw" / CIFAR10.folder, CIFAR10)
    archive = pack_tar(folder / "raw" / CIFAR10.folder, folder / "cifar-10-python.tar.gz")
    return replace(record, archive=archive)


def test_records_describe_the_published_sets() -> None:
    assert list_datasets() == ["cifar10", "cifar100", "ilsvrc2012", "nuswide", "digits"]
    assert CIFAR10.num_images == CIFAR100.num_images == 60_000
    for record in (CIFAR10, CIFAR100):
        assert record.archive is not None
        assert all(len(md5) == 32 for _, md5 in (*record.files, ("", record.archive.md5)))
    for wrong, hint in (("CIFAR-10", "did you mean cifar10"), ("nus_wide", "did you mean nuswide"), ("xyz", "choose from")):
        with pytest.raises(InputError, match=hint):
            get_dataset_info(wrong)


def test_the_nearest_place_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_DATA", str(tmp_path / "environment"))
    places = [tmp_path / "said", tmp_path / "environment", tmp_path / "cache" / "data"]
    assert data_folders(tmp_path / "said") == places
    assert find_folder(CIFAR10, tmp_path / "said") is None
    for place in reversed(places):
        (place / CIFAR10.folder).mkdir(parents=True)
        assert find_folder(CIFAR10, tmp_path / "said") == place / CIFAR10.folder


def test_an_archive_that_lies_there_is_verified_and_unpacked(tmp_path: Path) -> None:
    record = packed(tmp_path)
    assert find_archive(record, tmp_path) == tmp_path / "cifar-10-python.tar.gz"
    folder = fetch_folder(record, tmp_path)
    assert folder == tmp_path / CIFAR10.folder
    check_files(record, folder)


def test_an_archive_with_a_wrong_checksum_is_not_opened(tmp_path: Path) -> None:
    record = packed(tmp_path)
    with (tmp_path / "cifar-10-python.tar.gz").open("ab") as handle:
        handle.write(b"x")
    with pytest.raises(InputError, match="is not the official archive of cifar10: its checksum differs; delete it"):
        fetch_folder(record, tmp_path)
    assert not (tmp_path / CIFAR10.folder).exists()


def test_a_missing_archive_is_fetched_and_verified(tmp_path: Path) -> None:
    record = packed(tmp_path / "server")
    assert record.archive is not None
    url = (tmp_path / "server" / "cifar-10-python.tar.gz").as_uri()
    record = replace(record, archive=replace(record.archive, url=url))
    folder = fetch_folder(record, tmp_path / "data")
    check_files(record, folder)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [CIFAR10.folder, "cifar-10-python.tar.gz"]


def test_without_a_network_one_is_told_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    record = replace(CIFAR100, archive=Archive("http://127.0.0.1:9/cifar-100-python.tar.gz", "0" * 32, 10))
    with pytest.raises(InputError) as raised:
        fetch_folder(record, tmp_path)
    sentence = str(raised.value)
    assert sentence.startswith(
        "http://127.0.0.1:9/cifar-100-python.tar.gz could not be downloaded (Connection refused); cifar100 "
    )
    assert f"or its train, test and meta into {tmp_path / 'cifar-100-python'}." in sentence
    with pytest.raises(InputError, match=r"cifar100 was not found in .*: put http://.* there, as it is, or its train, test"):
        fetch_folder(record, tmp_path, fetch=False)
    with pytest.raises(InputError, match=r"ilsvrc2012 was not found in .*: get it from https://.* and put train/"):
        fetch_folder(ILSVRC2012, tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_changed_and_missing_files_are_named(tmp_path: Path) -> None:
    record = write_cifar(tmp_path / CIFAR10.folder, CIFAR10)
    (tmp_path / CIFAR10.folder / "data_batch_3").write_bytes(b"changed")
    with pytest.raises(InputError, match="data_batch_3 is not the official file of cifar10: its checksum differs"):
        check_files(record, tmp_path / CIFAR10.folder)
    (tmp_path / CIFAR10.folder / "data_batch_3").unlink()
    with pytest.raises(InputError, match="is incomplete: data_batch_3 is missing; it must hold data_batch_1 to"):
        check_files(record, tmp_path / CIFAR10.folder)


def test_names_and_paths_meet_at_one_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = write_cifar(tmp_path / CIFAR10.folder, CIFAR10)
    monkeypatch.setitem(catalog.DATASETS, "cifar10", record)
    assert len(load_dataset("cifar10", data_dir=tmp_path)) == 120
    for name, sentence in (
        ("cifar-10", "There is no data set and no folder called cifar-10; did you mean cifar10?"),
        ("some/where", "There is no folder some/where."),
        (str(tmp_path / CIFAR10.folder / "batches.meta"), "is not a folder."),
        ("x" * 300, "There is no data set and no folder called x"),
        ("x" * 300 + "/y", "cannot be read: File name too long."),
    ):
        with pytest.raises(InputError) as raised:
            load_dataset(name)
        assert sentence in str(raised.value)
