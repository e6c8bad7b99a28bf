"""Few classes between the known codes: flip single bits until the words are one bit farther apart, while that works."""

import numpy as np

from proxyhash.proxies.bit_flips import Stage, flipped
from proxyhash.proxies.constructions.choice import evened
from proxyhash.proxies.constructions.distance import minimal_distance
from proxyhash.proxies.constructions.hadamard import Signs
from proxyhash.utils.random import generator

_UP_TO = 64  # words; with more, random flips never beat the algebra
_FLIPS = 200_000
_STAGES = 20


def annealed_code(code: Signs, reached: int, most: int) -> Signs:
    """Return words (C, d) of a larger minimal distance than that of `code`, which is `reached`, or `code` itself."""
    classes, bits = code.shape
    while classes <= _UP_TO and reached < most:
        random = generator(0, "annealed code", classes, bits, reached)
        start = np.where(random.random((classes, bits)) < 0.5, -1.0, 1.0)
        stages = [Stage(temperature, 1.0, _FLIPS // _STAGES) for temperature in np.geomspace(3.0, 0.3, _STAGES)]
        found = flipped(start, reached + 1, stages, random).astype(np.int8)
        apart = minimal_distance(found)
        if apart <= reached:
            break
        code, reached = evened(found, apart), apart
    return code
