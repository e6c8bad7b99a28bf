"""The page for an index of vectors in a real browser: vectors that are typed, pasted, dropped and chosen as files."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from helpers.models import load_encoder, make_vector_model
from helpers.page_session import PageSession
from helpers.service import RunningService, serving
from proxyhash.data.vectors import read_vectors
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.vector_sync import add_vectors

WIDTH, BITS = 12, 32
VECTORS = np.random.default_rng(0).normal(size=(60, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def vector_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("vectors")
    model = make_vector_model(WIDTH, BITS, 0, folder / "encoder")
    labels = np.array(["odd" if row % 2 else "even" for row in range(len(VECTORS))])
    np.savez(folder / "v.npz", vectors=VECTORS, keys=np.array([f"text {row}" for row in range(len(VECTORS))]), labels=labels)
    with LocalIndex.open_folder(folder / "i", model=model) as index:
        add_vectors(index, read_vectors(folder / "v.npz"))
    with serving(folder / "i", {"token": None}) as running:
        yield running


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def numbers(row: int) -> str:
    return ", ".join(f"{value:.6f}" for value in VECTORS[row])


def expect_first(session: PageSession, title: str, row: int) -> None:
    session.expect_title(title)
    session.expect_state("results")
    expect(session.page.locator(".card .name").first).to_have_text(f"text {row}")
    expect(session.page.locator(".card .distance").first).to_have_text("0 bits")


@pytest.mark.parametrize("width", [1280, 390])
def test_vector_is_typed_and_its_results_lead_to_further_searches(
    browser: Browser, vector_service: RunningService, width: int
) -> None:
    session = PageSession(browser, vector_service.url, width=width)
    page = session.page
    expect(page.locator("label[for=vector]")).to_have_text("Paste a vector of 12 numbers")
    expect(page.locator("#choose")).not_to_be_visible()
    expect(page.locator(".card.sample")).to_have_count(12)
    expect(page.locator(".card .thumbnail").first).not_to_be_visible()  # an empty square says nothing
    page.fill("#vector", numbers(7))
    page.press("#vector", "Enter")
    expect_first(session, "Pasted vector", 7)
    expect(page.locator(".card .labels").first).to_have_text("odd")
    expect(page.locator("#query .mosaic")).to_be_visible()
    page.locator("#filter button", has_text="even").click()
    expect(page.locator(".card .labels")).to_have_text(["even"] * 24)
    page.locator(".card a").nth(2).click()
    expect(page.locator("#title")).to_contain_text("text ")
    session.expect_state("results")
    page.go_back()
    session.expect_title("A code")  # the address holds the code, not the vector
    session.close()


def test_code_of_the_page_is_that_of_the_model(browser: Browser, vector_service: RunningService) -> None:
    session = PageSession(browser, vector_service.url)
    session.page.fill("#vector", json.dumps(VECTORS[5].tolist()))
    session.page.get_by_role("button", name="Search").first.click()
    expect_first(session, "Pasted vector", 5)
    code = load_encoder(vector_service.index.parent / "encoder").encode(VECTORS[5:6])
    assert f"code={code.tobytes().hex()}" in session.page.url
    session.close()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_npy_file_is_read(browser: Browser, vector_service: RunningService, dtype: str, dimensions: int) -> None:
    session = PageSession(browser, vector_service.url)
    rows = VECTORS[9:12].astype(dtype)
    path = vector_service.index.parent / f"{dtype}-{dimensions}.npy"
    np.save(path, rows[0] if dimensions == 1 else rows)
    expect(session.page.locator("#file")).to_have_attribute("accept", ".npy,.json,.txt,.csv")
    session.upload(path)
    expect_first(session, path.name, 9)
    session.close()


def test_files_are_dropped_and_texts_are_pasted(browser: Browser, vector_service: RunningService) -> None:
    session = PageSession(browser, vector_service.url)
    page = session.page
    expect(page.locator(".card.sample")).to_have_count(12)
    make = "const data = new DataTransfer(); data.items.add(new File([new Uint8Array(bytes)], name));"
    drop = f"{make} document.body.dispatchEvent(new DragEvent('drop', {{dataTransfer: data, bubbles: true}}));"
    for name, content in (
        ("rows.npy", npy(VECTORS[20:30])),
        ("rows.json", json.dumps(VECTORS[20:22].tolist()).encode()),
        ("rows.csv", f"{numbers(20)}\n{numbers(21)}\n".encode()),
    ):
        page.evaluate(f"([bytes, name]) => {{ {drop} }}", [list(content), name])
        expect_first(session, name, 20)
    paste = "const data = new DataTransfer(); data.setData('text/plain', text);"
    paste += "document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true}));"
    page.evaluate(f"text => {{ {paste} }}", numbers(31).replace(",", ""))
    expect_first(session, "Pasted vector", 31)
    session.close()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("words.txt", b"hello world", "This is not a vector. Give numbers"),
        ("broken.json", b"[1, 2", "This is not a vector. Give numbers"),
        ("empty.txt", b"", "This is not a vector. Give numbers"),
        ("integers.npy", npy(np.arange(WIDTH)), "integers.npy must hold a vector"),
        ("cube.npy", npy(np.zeros((2, 2, 2))), "cube.npy must hold a vector"),
        ("columns.npy", npy(np.asfortranarray(VECTORS[:4])), "columns.npy must hold a vector"),
        ("short.npy", npy(VECTORS[:1])[:-8], "short.npy ends too early"),
        ("header.npy", b"\x93NUMPY\x01", "header.npy ends too early"),
        ("wide.txt", b"1 2 3", "the model takes vectors of 12 values, not 3."),
        ("zeros.txt", b"0 " * WIDTH, "all zeros"),
    ],
)
def test_what_is_no_vector_is_answered_in_one_sentence(
    browser: Browser, vector_service: RunningService, tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    session = PageSession(browser, vector_service.url)
    session.upload(tmp_path / name)
    session.expect_state("error")
    expect(session.page.locator("#notice p")).to_contain_text(sentence)
    session.page.select_option("#k", "12")  # nothing is searched again
    session.search_key("text 3")
    expect_first(session, "text 3", 3)
    session.ignore("status of 422")
    session.close()
