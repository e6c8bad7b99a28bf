"""Recipes of the paper's experiments, which come with the package."""

from pathlib import Path

from proxyhash.experiments.grid import Grid
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import lookup

_FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")  # in a wheel; in the repository


def list_recipes() -> dict[str, Path]:
    """Return the recipes by name."""
    for folder in _FOLDERS:
        if found := {path.stem: path for path in sorted(folder.glob("*.toml"))}:
            return found
    raise InputError("This installation has no recipes; install proxyhash again.")


def find_recipe(name: str) -> Path:
    """Return the file of a recipe by name."""
    return lookup("experiment", name, list_recipes())


def summary(path: Path) -> str:
    """Return the description of a recipe: its comment before the first key."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = lines[: next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.removeprefix("#").strip() for line in head)


def read_recipe(name: str) -> Grid:
    """Return the grid of a recipe by name."""
    return Grid.from_toml(find_recipe(name))
