"""Filter expressions such as `label == 'cat' and year > 2020`: their grammar, and the parser.

disjunction  = conjunction { "or" conjunction }
conjunction  = negation { "and" negation }
negation     = "not" negation | "(" disjunction ")" | comparison
comparison   = name operator constant | constant operator name | name [ "not" ] "in" list
operator     = "==" | "!=" | "<" | "<=" | ">" | ">="
list         = "(" constant { "," constant } ")", or the same in brackets
constant     = number | text in single or double quotes | "None" | "True" | "False"
name         = letters, digits and _, or any text in backticks
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from proxyhash.index.where.tokens import Token, tokenize
from proxyhash.utils.errors import FilterError

MAX_DEPTH = 50  # of parentheses and negations
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LITERALS = {"None": None, "True": 1, "False": 0}
_KEYWORDS = ("and", "or", "not", "in", *_LITERALS)
_CLOSING = {"(": ")", "[": "]"}

Constant = str | int | float | None


@dataclass(frozen=True)
class Comparison:
    """A column compared with a constant, or with a tuple of constants by "in" and "not in"."""

    name: str
    operator: str
    value: Constant | tuple[Constant, ...]
    position: int = field(default=0, compare=False)  # of the name in the text, from 1

    @property
    def values(self) -> tuple[Constant, ...]:
        """Return the constants as a tuple."""
        return self.value if isinstance(self.value, tuple) else (self.value,)


@dataclass(frozen=True)
class Not:
    """The negation of an expression."""

    operand: "Expression"


@dataclass(frozen=True)
class And:
    """Several expressions that must all be true."""

    operands: tuple["Expression", ...]


@dataclass(frozen=True)
class Or:
    """Several expressions of which one must be true."""

    operands: tuple["Expression", ...]


Expression = Comparison | Not | And | Or


def parse_expression(text: str) -> Expression:
    """Return the expression that a text states.

    Parameters
    ----------
    text
        A filter, such as `label == 'cat' and year > 2020`.

    Returns
    -------
    Comparison, Not, And or Or
        The tree of the expression. Names and types of columns are checked by `bind_expression`.

    Raises
    ------
    FilterError
        If the text is no expression; the message names the position, and what was expected there.

    Examples
    --------
    >>> parse_expression("year > 2020")
    Comparison(name='year', operator='>', value=2020, position=1)
    >>> parse_expression("not (1 < x)") == Not(Comparison("x", ">", 1))
    True
    """
    if not isinstance(text, str):
        raise FilterError(f'A filter is a text such as "year > 2020", not {type(text).__name__}.')
    parser = _Parser(tokenize(text))
    expression = parser.disjunction(0)
    parser.expect("end", "and, or, or the end of the filter")
    return expression


def columns_of(expression: Expression) -> Iterator[Comparison]:
    """Yield all comparisons of an expression, from left to right."""
    if isinstance(expression, Comparison):
        yield expression
    elif isinstance(expression, Not):
        yield from columns_of(expression.operand)
    else:
        for operand in expression.operands:
            yield from columns_of(operand)


class _Parser:
    """Recursive descent over tokens, the last of which is the end."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._next = tokens, 0

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def take(self, *words: str) -> Token | None:
        """Return the next token and go on, if it is one of some words; None otherwise."""
        token = self.token
        if token.kind != "word" or token.text not in words:
            return None
        self._next += 1
        return token

    def expect(self, kind: str, expected: str) -> Token:
        """Return the next token and go on; one of another kind is an error that says what was expected."""
        token = self.token
        if token.kind != kind:
            self.fail(expected)
        self._next += 1
        return token

    def fail(self, expected: str) -> NoReturn:
        token = self.token
        found = "it ends there" if token.kind == "end" else f"found {token.source}"
        hint = "; write == to compare" if token.source == "=" else ""
        raise FilterError(f"The filter needs {expected} at character {token.position}, but {found}{hint}.")

    def disjunction(self, depth: int) -> Expression:
        operands = [self.conjunction(depth)]
        while self.take("or"):
            operands.append(self.conjunction(depth))
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def conjunction(self, depth: int) -> Expression:
        operands = [self.negation(depth)]
        while self.take("and"):
            operands.append(self.negation(depth))
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def negation(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise FilterError(f"A filter has at most {MAX_DEPTH} parentheses and negations inside each other.")
        if self.take("not"):
            return Not(self.negation(depth + 1))
        if self.token.kind == "mark" and self.token.text == "(":
            self._next += 1
            inner = self.disjunction(depth + 1)
            self._close("(", "and, or, or )")
            return inner
        return self.comparison()

    def comparison(self) -> Expression:
        if self._is_constant():
            value = self.constant()
            operator = self.expect("operator", "a comparison such as == or <")
            name = self.name()
            return Comparison(name.text, _MIRRORED[operator.text], value, name.position)
        name = self.name()
        if self.take("not"):
            if not self.take("in"):
                self.fail("in")
            return Comparison(name.text, "not in", self.constants(), name.position)
        if self.take("in"):
            return Comparison(name.text, "in", self.constants(), name.position)
        operator = self.expect("operator", "a comparison such as ==, < or in")
        return Comparison(name.text, operator.text, self.constant(), name.position)

    def name(self) -> Token:
        if self.token.kind == "word" and self.token.text in _KEYWORDS:
            self.fail("the name of a column")
        if self.token.kind == "word":
            self._next += 1
            return self._tokens[self._next - 1]
        return self.expect("name", "the name of a column")

    def constants(self) -> tuple[Constant, ...]:
        opening = self.token
        if opening.kind != "mark" or opening.text not in _CLOSING:
            self.fail("a list such as ('a', 'b')")
        self._next += 1
        values = [self.constant()]
        while self.token.kind == "mark" and self.token.text == ",":
            self._next += 1
            if self.token.text == _CLOSING[opening.text]:
                break  # a comma after the last value
            values.append(self.constant())
        self._close(opening.text, f"a comma or {_CLOSING[opening.text]}")
        return tuple(values)

    def constant(self) -> Constant:
        if not self._is_constant():
            self.fail("a number, a text in quotes, or None")
        token = self.token
        self._next += 1
        return _LITERALS[token.text] if token.kind == "word" else token.value

    def _is_constant(self) -> bool:
        return self.token.kind == "constant" or (self.token.kind == "word" and self.token.text in _LITERALS)

    def _close(self, opening: str, expected: str) -> None:
        if self.token.kind != "mark" or self.token.text != _CLOSING[opening]:
            self.fail(expected)
        self._next += 1
