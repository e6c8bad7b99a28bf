"""Which kind to take if nobody says: the best on seen and unseen classes together, as docs/results.md has it measured."""

from dataclasses import replace

from proxyhash.proxies.kinds import Brief

AUTO = "auto"
FLOOR_SHARE = 0.5  # of the distance that `code` reaches; more helps seen classes by less than it costs unseen ones


def recommended(brief: Brief) -> tuple[str, Brief]:
    """Return a kind for C classes in d bits, and how it is to be built.

    Where the similarity of classes is known, following it counts most: `joint` with a low floor loses less than a point
    of mAP on seen classes, and gains several on unseen ones, at every length. It holds all pairs of classes, so more
    of them get `scode`. Where it is not known, distance is all there is, and `code` has the most.
    """
    if brief.similarity is None:
        return "code", brief
    from proxyhash.proxies.joint import MOST_CLASSES  # importing it compiles

    if brief.classes > MOST_CLASSES:
        return "scode", brief
    return "joint", replace(brief, floor_share=FLOOR_SHARE)
