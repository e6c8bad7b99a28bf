from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxyhash import InputError, design_proxies
from proxyhash.proxies import figures


@pytest.mark.parametrize("kind", ["hclm", "tammes"])
def test_a_figure_shows_the_distances_and_the_bound(kind: str, tmp_path: Path) -> None:
    proxies = design_proxies(6, 8, kind)
    figure = figures.draw_proxies(proxies, ["ant", "bee", "cat", "dog", "eel", "fly"])
    matrix, margins = figure.axes[:2]
    shown = np.ma.masked_invalid(np.asarray(matrix.images[0].get_array()))
    assert shown.min() == pytest.approx(proxies.quality.min_distance)
    assert [label.get_text() for label in matrix.get_xticklabels()] == ["ant", "bee", "cat", "dog", "eel", "fly"]
    assert margins.lines[0].get_xdata()[0] == proxies.quality.distance_bound  # type: ignore[index]

    figures.save_figure(proxies, tmp_path / "set.png")
    with Image.open(tmp_path / "set.png") as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 20


def test_too_many_classes_are_drawn_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_CLASSES_DRAWN", 5)
    matrix = figures.draw_proxies(design_proxies(9, 8, "random")).axes[0]
    assert matrix.images[0].get_array().shape == (5, 5)  # type: ignore[union-attr]
    assert "first 5 of 9 classes" in matrix.get_title()


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.pdf or \.svg"):
        figures.save_figure(design_proxies(3, 4, "random"), tmp_path / "set.bmp")
    assert list(tmp_path.iterdir()) == []
