"""Assignment of proxies to classes, eq. (class_assignment): similar classes get similar proxies.

The quadratic assignment problem over permutations gamma: minimize sum_{i != j} s_ij (1 - w_gamma_i . w_gamma_j / d). The sum
of all w_i . w_j does not depend on gamma, so equivalently maximize the gain sum_{i != j} s_ij w_gamma_i . w_gamma_j / d.
With V = S W, swapping the proxies of classes p and q changes half the gain by
(w_q - w_p) . (V_p - V_q) - s_pq |w_q - w_p|^2: all swaps cost one matrix product, and no C x C matrix of proxies is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Permutation = NDArray[np.int64]

_WORK = "Assigning proxies to classes"
_MAX_POLISHED_CLASSES = 2_000  # with more classes, best swaps, each of which evaluates all pairs, take too long


@dataclass(frozen=True)
class AssignmentProblem:
    """A similarity (C, C) with zero diagonal, unit proxies (C, d), an initial assignment (C,) and solver options."""

    similarity: Floats
    unit: Floats
    start: Permutation
    seed: int
    threads: int
    progress: Progress


def gain(similarity: Floats, weights: Floats, assignment: Permutation | None = None) -> float:
    """Return sum_{i != j} s_ij cos(w_gamma_i, w_gamma_j), the part of the objective that an assignment changes."""
    unit = unit_rows(weights.astype(np.float64))
    unit = unit if assignment is None else unit[assignment]
    return float(np.einsum("ij,ij->", similarity @ unit, unit) - np.trace(similarity))


def assign(
    similarity: Floats,
    weights: Floats,
    *,
    solver: str = "anneal",
    start: Permutation | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Permutation:
    """Return gamma (C,): class i gets row gamma_i of `weights` (C, d). Never worse than `start` (default: random).

    `solver` is `greedy` (the paper's: always the best swap), `anneal` (simulated annealing, then best swaps) or `faq` (the
    fast approximate QAP method of Vogelstein et al., then best swaps). The threads do not change the result.
    """
    if solver not in SOLVERS:
        raise InputError(f"There is no assignment solver {solver!r}; choose from {', '.join(SOLVERS)}.")
    start = generator(seed, "assignment").permutation(len(weights)) if start is None else start
    s = similarity.copy()
    np.fill_diagonal(s, 0)  # the similarity of a class to itself is irrelevant
    problem = AssignmentProblem(s, unit_rows(weights.astype(s.dtype)), start, seed, threads or available_threads(), progress)
    with single_threaded_blas():
        found = SOLVERS[solver](problem)
    progress(_WORK, 1.0)
    return max(start, found, key=lambda assignment: gain(s, problem.unit, assignment))


def greedy(problem: AssignmentProblem) -> Permutation:
    """Apply the best swap until no swap improves the objective."""
    return best_swaps(problem.similarity, problem.unit, problem.start)


def anneal(problem: AssignmentProblem) -> Permutation:
    """Anneal several chains of random swaps, and take the best to its local optimum by best swaps."""
    from proxyhash.proxies.assignment_annealing import anneal_swaps, num_chains  # imports numba

    s, unit = problem.similarity, problem.unit
    done = [0.0] * num_chains(len(unit))

    def run(chain: int) -> Permutation:
        def listen(fraction: float) -> None:
            done[chain] = fraction
            problem.progress(_WORK, sum(done) / len(done))

        found = anneal_swaps(s, unit, problem.start, generator(problem.seed, "assignment", chain), listen)
        return best_swaps(s, unit, found) if len(unit) <= _MAX_POLISHED_CLASSES else found

    return max(ordered_map(run, range(len(done)), problem.threads), key=lambda found: gain(s, unit, found))


def faq(problem: AssignmentProblem) -> Permutation:
    """Frank-Wolfe over doubly stochastic matrices, projected to a permutation, then best swaps."""
    from scipy.optimize import quadratic_assignment

    options = {"maximize": True, "rng": generator(problem.seed, "assignment", "faq")}
    relaxed = quadratic_assignment(problem.similarity, problem.unit @ problem.unit.T, method="faq", options=options)
    problem.progress(_WORK, 0.5)
    return best_swaps(problem.similarity, problem.unit, relaxed.col_ind.astype(np.int64))


SOLVERS: dict[str, Callable[[AssignmentProblem], Permutation]] = {"greedy": greedy, "anneal": anneal, "faq": faq}


def best_swaps(s: Floats, unit: Floats, start: Permutation, fixed: int = 0) -> Permutation:
    """Apply the swap of the largest gain from `start` until no swap gains; `s` (C, C) has a zero diagonal.

    The first `fixed` classes keep their proxies.
    """
    assignment = start.copy()
    placed = unit[assignment]
    pull = (s @ placed) @ placed.T  # pull[i, j]: gain of class i with the proxy of class j
    squared_steps = 2 - 2 * placed @ placed.T
    tolerance = 100 * np.finfo(s.dtype).eps * float(np.abs(pull).max())
    while True:
        own = np.diag(pull)
        change = pull + pull.T - own[:, None] - own - s * squared_steps
        change[:fixed], change[:, :fixed] = -np.inf, -np.inf
        p, q = divmod(int(change.argmax()), len(s))
        if change[p, q] <= tolerance:
            return assignment
        pull += np.outer(s[p] - s[q], placed @ (placed[q] - placed[p]))
        pull[:, [p, q]] = pull[:, [q, p]]
        squared_steps[[p, q]] = squared_steps[[q, p]]
        squared_steps[:, [p, q]] = squared_steps[:, [q, p]]
        placed[[p, q]] = placed[[q, p]]
        assignment[[p, q]] = assignment[[q, p]]
