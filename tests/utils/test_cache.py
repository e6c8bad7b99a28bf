import numpy as np

from proxyhash.utils.cache import ArrayCache


def test_what_was_asked_for_last_is_not_computed_again() -> None:
    computed: list[str] = []

    def ask(name: str) -> float:
        def compute() -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
            computed.append(name)
            return np.array([float(ord(name))])

        return float(memory.get(name, compute)[0])

    memory = ArrayCache(2)
    assert [ask(name) for name in "abab"] == [97, 98, 97, 98]
    assert computed == ["a", "b"]
    ask("c")  # a was asked for before b
    assert ask("b") == 98
    assert computed == ["a", "b", "c"]
    ask("a")
    assert computed == ["a", "b", "c", "a"]


def test_nobody_can_change_what_is_kept() -> None:
    memory = ArrayCache(1)
    memory.get("zeros", lambda: np.zeros(3))[:] = 1
    assert memory.get("zeros", lambda: np.ones(3)).tolist() == [0, 0, 0]
