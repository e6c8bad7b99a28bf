"""What stands between features and codes: one head a file, known by its name, so that a saved model can build it again."""

from proxyhash.models.heads.head import Head, HeadShape, Queries
from proxyhash.models.heads.plain import HashHead, LinearHead
from proxyhash.models.heads.registry import describe_head, head_kind, make_head

__all__ = ["HashHead", "Head", "HeadShape", "LinearHead", "Queries", "describe_head", "head_kind", "make_head"]
