"""What is chosen from which facts: no image is read."""

from dataclasses import replace

import pytest

from proxyhash.quickstart import Facts, Wishes, choose
from proxyhash.utils.errors import InputError

PHOTOS = Facts(
    "photos", 500, "classes", 10, 10, train=405, validation=45, queries=50, unseen_queries=13,
    pretrained=("efficientnet_lite0", "efficientnet_lite1"),
)  # fmt: skip


def why(facts: Facts, what: str, wishes: Wishes | None = None) -> str:
    (reason,) = [reason for reason in choose(facts, wishes).reasons if reason.what == what]
    return f"{reason.chosen}: {reason.why}"


@pytest.mark.parametrize(
    ("classes", "bits"),
    [(2, 16), (10, 16), (16, 16), (17, 32), (100, 32), (256, 32), (257, 64), (1_000, 64), (100_000, 128)],
)
def test_bits_grow_with_the_logarithm_of_the_classes(classes: int, bits: int) -> None:
    assert choose(replace(PHOTOS, classes=classes, shared=classes)).bits == bits


def test_tags_need_longer_codes_because_an_image_has_several() -> None:
    tagged = replace(PHOTOS, kind="tags", classes=20, shared=20)
    assert (choose(replace(tagged, kind="classes")).bits, choose(tagged).bits) == (32, 64)
    assert "tags" in why(tagged, "method")
    assert choose(tagged).transfer is False


def test_labels_are_learned_from_if_two_classes_have_two_images() -> None:
    assert choose(PHOTOS).method == "shclm"
    assert choose(replace(PHOTOS, shared=1)).method == "itq"
    assert choose(replace(PHOTOS, queries=0)).method == "itq"
    unlabeled = Facts("photos", 500, "unlabeled", pretrained=("efficientnet_lite0",))
    chosen = choose(unlabeled)
    assert (chosen.method, chosen.bits, chosen.epochs, chosen.transfer, chosen.calibrate) == ("itq", 64, None, False, False)
    assert choose(replace(unlabeled, images=40)).bits == 32
    assert choose(replace(unlabeled, images=5)).bits == 16


def test_a_long_tail_and_images_without_labels_are_said() -> None:
    said = why(replace(PHOTOS, shared=7, unlabeled=1_200), "method")
    assert "1,200 images without a label are indexed, not learned from" in said
    assert "3 classes have one image" in said


def test_the_backbone_is_what_is_installed_and_fits_the_images() -> None:
    chosen = choose(PHOTOS)
    assert (chosen.backbone, chosen.finetune, chosen.image_size) == ("efficientnet_lite0", False, None)
    tiny = choose(replace(PHOTOS, side=12))
    assert (tiny.backbone, tiny.finetune, tiny.image_size) == ("convnet", True, 16)
    bare = replace(PHOTOS, pretrained=())
    assert (choose(bare).backbone, choose(bare).image_size) == ("convnet", 64)
    assert "proxyhash[pretrained]" in why(bare, "backbone")
    assert choose(PHOTOS, Wishes(backbone="timm/resnet18")).backbone == "timm/resnet18"
    assert choose(PHOTOS, Wishes(backbone="convnet")).finetune is True


def test_tiny_pictures_without_labels_still_use_pretrained_features() -> None:
    unlabeled = Facts("photos", 500, "unlabeled", side=12, pretrained=("efficientnet_lite0",))
    assert choose(unlabeled).backbone == "efficientnet_lite0"
    with pytest.raises(InputError, match=r'photos needs pretrained features: run pip install "proxyhash\[pretrained\]".'):
        choose(replace(unlabeled, pretrained=()))
    random = choose(replace(unlabeled, pretrained=()), Wishes(backbone="convnet"))
    assert (random.backbone, random.finetune) == ("convnet", False)


@pytest.mark.parametrize(("train", "epochs", "batch"), [(40, 30, 16), (405, 16, 16), (2_048, 25, 128), (50_000, 12, 256)])
def test_few_images_are_passed_over_more_often_in_smaller_steps(train: int, epochs: int, batch: int) -> None:
    chosen = choose(replace(PHOTOS, train=train))
    assert (chosen.epochs, chosen.batch) == (epochs, batch)


def test_unseen_classes_are_checked_where_that_says_something() -> None:
    assert choose(replace(PHOTOS, classes=20, shared=20, unseen_queries=20)).transfer is True
    assert choose(replace(PHOTOS, classes=19, shared=19, unseen_queries=20)).transfer is False
    assert choose(replace(PHOTOS, classes=20, shared=20, unseen_queries=19)).transfer is False
    assert choose(PHOTOS).calibrate is True
    assert choose(replace(PHOTOS, validation=9)).calibrate is False


def test_wishes_are_granted_and_said() -> None:
    chosen = choose(PHOTOS, Wishes(bits=48, epochs=3))
    assert (chosen.bits, chosen.epochs) == (48, 3)
    assert why(PHOTOS, "bits", Wishes(bits=48)) == "48: as you said"
