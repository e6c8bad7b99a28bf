from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxyhash.experiments import Grid
from proxyhash.experiments.recipes import find_recipe, list_recipes, read_recipe, summary
from proxyhash.utils.errors import InputError

GRID = Grid("digits", ("lsh", "shclm"), (8, 16), seeds=2)


def test_seeds_vary_slowest_and_each_code_length_is_a_trial() -> None:
    met = [(trial.seed, trial.method, trial.code_lengths) for trial in GRID.trials()]
    assert met == [(seed, name, (bits,)) for seed in (0, 1) for name in ("lsh", "shclm") for bits in (8, 16)]


def test_finetuned_network_has_all_code_lengths() -> None:
    grid = Grid("digits", ("shclm",), (8, 16), folds=(0, 2), finetune=True)
    assert [(trial.code_lengths, trial.fold) for trial in grid.trials()] == [((8, 16), 0), ((8, 16), 2)]
    assert all(trial.optim.backbone_lr > 0 for trial in grid.trials())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ()}, "A grid needs one or more different methods, not []."),
        ({"methods": ("lsh", "lsh")}, "A grid needs one or more different methods, not ['lsh', 'lsh']."),
        ({"methods": ("lhs",)}, "There is no method 'lhs'; did you mean lsh?"),
        ({"bits": (8, 0)}, "bits must be at least 1, not 0."),
        ({"bits": ()}, "A grid needs one or more different bits"),
        ({"seeds": 0}, "seeds must be at least 1, not 0."),
        ({"folds": (-1,)}, "folds must be at least 0, not -1."),
        ({"eval_on": "train"}, "A grid is evaluated on test or validation, not 'train'."),
        ({"top": 0}, "top must be at least 1, not 0."),
        ({"denominator": "hits"}, "There is no denominator 'hits'; choose from relevant, capped, retrieved."),
        ({"finetune": True}, "LSH trains no network and cannot be fine-tuned."),
        ({"optim": {"epoch": 3}}, "OptimConfig has no setting 'epoch'; did you mean epochs?"),
        ({"settings": {"shclm": {"tua": 3.0}}}, "has no setting 'tua'; did you mean tau?"),
        ({"settings": {"dpsh": {}}}, "The grid has settings for dpsh, which is not among its methods."),
    ],
)
def test_invalid_grid_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        replace(GRID, **changes)
    assert sentence in str(error.value)


def test_settings_after_the_name_make_a_row() -> None:
    grid = Grid("digits", ("shclm", "shclm:triplet=2:loss=nca"), (8,), settings={"shclm": {"tau": 4.0}})
    plain, joint = grid.trials()
    assert (plain.method, plain.settings) == ("shclm", {"tau": 4.0})
    assert (joint.label, joint.method) == ("shclm:triplet=2:loss=nca", "shclm")
    assert joint.settings == {"tau": 4.0, "triplet": 2, "loss": "nca"}
    with pytest.raises(InputError, match="typed name:setting=value, not shclm:triplet"):
        Grid("digits", ("shclm:triplet",))
    with pytest.raises(InputError, match="has no setting 'depth'"):
        Grid("digits", ("shclm:depth=3",))


def test_recipe_is_read_as_a_grid(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'dataset = "digits"\nmethods = ["lsh", "shclm"]\nbits = [8, 16]\nseeds = 2\n'
        "[optim]\nepochs = 3\n[settings.shclm]\ntau = 4.0\n"
    )
    assert Grid.from_toml(recipe) == replace(GRID, optim={"epochs": 3}, settings={"shclm": {"tau": 4.0}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('dataset = "digits"\nmethod = ["lsh"]', "has no setting 'method'; did you mean methods?"),
        ("dataset = digits", "is not a TOML file: "),
        ('methods = ["lsh"]', "missing required field `dataset`"),
        ('dataset = "digits"\nmethods = "lsh"', "Expected `array`, got `str` - at `$.methods`."),
        ('dataset = "digits"\nmethods = ["lsh"]\nseeds = "two"', "Expected `int`, got `str` - at `$.seeds`."),
        ("dataset = 3", "Expected `str`, got `int` - at `$.dataset`."),
        ('dataset = ["digits"]\nmethods = ["lsh"]', "Expected `str`, got `array` - at `$.dataset`."),
        ('data = 3\nmethods = ["lsh"]', "Expected `str`, got `int` - at `$.dataset`."),
        ("data = [1]", "is not a recipe of a release: "),
        ('data = "digits"\nmethods = [1]', "is not a recipe of a release: "),
        ('dataset = "digits"\nmethods = [1]', "Expected `str`, got `int` - at `$.methods["),
        ('dataset = "digits"\nmethods = ["shclm"]\n[settings]\nshclm = 3', "Expected `object`, got `int`"),
        ('dataset = "digits"\nmethods = ["shclm"]\n[optim]\nlr = "fast"', "Expected `float`, got `str` - at `$.lr`."),
        (f'dataset = "digits"\nmethods = {"[" * 9_000}{"]" * 9_000}', "is not a TOML file: it is nested too deeply."),
        (f'dataset = "digits"\nmethods = ["shclm:tau={"[" * 9_000}"]', "The setting tau of shclm is nested too deeply."),
        (f'dataset = "digits"\nmethods = ["lsh"]\nseeds = {"9" * 5_000}', "is not a TOML file: Exceeds the limit"),
        (f'dataset = "digits"\nmethods = ["lsh"]\nseeds = 0x{"f" * 5_000}', "seeds must be at most 10000, not a number of"),
        ('dataset = "digits"\nmethods = ["lsh"]\nseeds = 1_000_000_000', "seeds must be at most 10000, not 1000000000."),
        ('dataset = "digits"\nmethods = ["lsh"]\nbits = [5_000]', "bits must be at most 4096, not 5000."),
        ('dataset = "digits"\nmethods = ["lsh"]\noptim = 3', "Expected `object`, got `int` - at `$.optim`."),
    ],
)
def test_invalid_recipe_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(text)
    with pytest.raises(InputError) as error:
        Grid.from_toml(recipe)
    assert sentence in str(error.value)


def test_recipe_of_the_transfer_to_unseen_classes_of_imagenet_trains_from_scratch() -> None:
    grid = read_recipe("transfer-ilsvrc2012")
    assert (grid.backbone, grid.pretrained, grid.finetune) == ("alexnet", False, True)
    assert all(trial.optim.backbone_lr > 0 for trial in grid.trials())


def test_missing_recipe_is_reported() -> None:
    with pytest.raises(InputError, match=r"Cannot read nowhere\.toml: No such file or directory\."):
        Grid.from_toml(Path("nowhere.toml"))


def test_every_recipe_has_trials_and_a_description() -> None:
    assert {"ablation", "cifar10", "cifar100", "ilsvrc2012", "nuswide", "tags"} <= list_recipes().keys()
    for name, path in list_recipes().items():
        assert list(read_recipe(name).trials())
        assert summary(path).endswith((".", "?"))
    with pytest.raises(InputError, match=r"There is no experiment 'ablatoin'; did you mean ablation\?"):
        find_recipe("ablatoin")
