"""How good are the steps of a solution, not only its last number? Steps are the bodies of `<<...>>`, in two spellings:

    <<3*4=12>>  as GSM8K annotates            <<multiply(n0,n1)>>  as MathQA's linear formulas

`seed_metrics` are the numbers of DarthReca/segmentation-losses-nlp to the last quirk, so that its tables can be
compared. `step_metrics` are the same quantities repaired: steps are compared as formulas rather than strings, and a
small evaluator checks their arithmetic. No text of a model is ever given to `eval`.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

from lossbench.data import numbers

STEP = re.compile(r"<<([^>]+)>>")
MAX_CHARACTERS = 200
"""Longer steps are the babble of a looping model: they are compared as strings and have no arithmetic."""

_SEED_ANSWER = re.compile(r"#### (\d+[\.,]*\d*)")
_SEED_LETTER = re.compile(r"Answer: (.)")
_COMMUTATIVE = {"+", "*", "add", "multiply"}


def steps(text: str) -> list[str]:
    """The bodies of all `<<...>>` of a text, in order."""
    return STEP.findall(text)


# ---- the seed repository's numbers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SeedFormula:
    operators: tuple[str, ...]
    operands: tuple[float | str, ...]
    result: float

    def is_equivalent(self, other: _SeedFormula) -> bool:
        if (self.operators, self.operands) == (other.operators, other.operands):
            return True
        commutes = set(self.operators) == set(other.operators) <= _COMMUTATIVE
        return commutes and set(self.operands) == set(other.operands)


def seed_metrics(prediction: str, label: str) -> dict[str, float]:
    """The seed repository's twelve numbers for one pair of texts, under its names.

    With P, L the lists of steps (sets where a set operation stands):

    iou |P∩L| / |P∪L|; overlap index |P∩L| / min(len P, len L); dice score 2|P∩L| / (len P + len L); precision, recall
    |P∩L| over len P, len L; wrong operators: share of P−L with the operands of a step of L−P; inverted operands: the
    same count going on for steps with a missing one's operators and operand set; real iou: steps of P equivalent to one
    of L, over |P∪L|; missing steps |L−P| / |L| (1 without label steps); extra steps |P−L| / |L|; repetitions
    (len P − |P|) / len P; accuracy: the number after `#### ` is close to the label's. 0 where a denominator is 0.

    Raises `ValueError` where the original does: its `float()` fails on thousands commas; `IndexError` for a step of
    brackets alone.
    """
    predicted, wanted = steps(prediction), steps(label)
    found, gold = set(predicted), set(wanted)
    both, union, wrong = len(found & gold), len(found | gold), found - gold

    answers = [_SEED_ANSWER.search(text) for text in (prediction, label)]
    accuracy = all(answers) and math.isclose(*(float(answer.group(1)) for answer in answers if answer))

    pairs = list(product(map(_seed_formula, wrong), map(_seed_formula, gold - found)))
    matches = {p for p, g in pairs if p.operands == g.operands}
    wrong_operators = len(matches)
    matches |= {
        p
        for p, g in pairs
        if not p.is_equivalent(g) and set(p.operands) == set(g.operands) and p.operators == g.operators
    }
    gold_formulas = [_seed_formula(step) for step in gold]
    equivalent = sum(any(p.is_equivalent(g) for g in gold_formulas) for p in map(_seed_formula, found))
    return {
        "iou": _ratio(both, union),
        "overlap index": _ratio(both, min(len(predicted), len(wanted))),
        "dice score": _ratio(2 * both, len(predicted) + len(wanted)),
        "accuracy": float(accuracy),
        "recall": _ratio(both, len(wanted)),
        "precision": _ratio(both, len(predicted)),
        "wrong operators": _ratio(wrong_operators, len(wrong)),
        "inverted operands": _ratio(len(matches), len(wrong)),
        "real iou": _ratio(equivalent, union),
        "missing steps": _ratio(len(gold - found), len(gold)) if wanted else 1.0,
        "extra steps": _ratio(len(wrong), len(gold)),
        "repetitions": _ratio(len(predicted) - len(found), len(predicted)),
    }


def seed_letter_accuracy(prediction: str, label: str) -> bool:
    """The seed repository's accuracy of multiple choice: the one character after the first `Answer: ` of both texts."""
    found, wanted = _SEED_LETTER.search(prediction), _SEED_LETTER.search(label)
    return bool(found and wanted and found.group(1) == wanted.group(1))


def _seed_formula(step: str) -> _SeedFormula:
    if any(sign in step for sign in "+-*/="):
        operators = re.findall(r"[-+*/]", step)
        operands: list[str] = re.split(r"[-+*/=]", step)
        result = 0.0
        if "=" in step:
            result = _seed_float(operands.pop())
        operands = operands[: len(operators) + 1]
        values = [_seed_float(operand) for operand in operands] if operators else operands
        return _SeedFormula(tuple(operators), tuple(values), result)
    names = re.findall(r"([^\(\),.]+)", step)
    return _SeedFormula((names[0],), tuple(name.removeprefix("CONST_") for name in names[1:3]), 0.0)


def _seed_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        found = re.match(r"\d+[\.,]+\d*", text)
        return float(found.group(0)) if found else 0.0


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else 0.0


# ---- the repaired ones -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A step read as a formula. `key` is equal for steps that say the same: operands of + and * in any order, numbers
    by value. `is_right` says whether its arithmetic holds; None where there is none to check."""

    key: Any
    operators: tuple[str, ...]
    operands: tuple[Any, ...]
    is_right: bool | None


def step_metrics(prediction: str, label: str) -> dict[str, float | None]:
    """Shares over the distinct steps P of a prediction and L of a label, where steps that say the same are one step.

    iou |P∩L| / |P∪L|; dice 2|P∩L| / (|P| + |L|); overlap |P∩L| / min(|P|, |L|); precision |P∩L| / |P|; recall
    |P∩L| / |L|; missing |L−P| / |L|; extra |P−L| / |L|; wrong_operators: share of P−L whose operands, in order, are
    those of a step of L−P; inverted_operands: share of P−L with the operators of a step of L−P and its operands in
    another order; repetitions: share of the written steps that say what an earlier one said; right_arithmetic: share of
    the written steps with an equation whose equation holds.

    None where the label has no step, and for right_arithmetic where there is no equation.
    """
    written, wanted = [parse(step) for step in steps(prediction)], [parse(step) for step in steps(label)]
    found, gold = {step.key: step for step in written}, {step.key: step for step in wanted}
    both = len(found.keys() & gold.keys())
    extra = [step for key, step in found.items() if key not in gold]
    missing = [step for key, step in gold.items() if key not in found]
    checked = [step.is_right for step in written if step.is_right is not None]
    wrong_operators = [p for p in extra if any(p.operands == g.operands for g in missing)]
    inverted = [
        p
        for p in extra
        if any(
            p.operators == g.operators and p.operands != g.operands and _same(p.operands, g.operands) for g in missing
        )
    ]
    shares = {
        "iou": _ratio(both, len(found.keys() | gold.keys())),
        "dice": _ratio(2 * both, len(found) + len(gold)),
        "overlap": _ratio(both, min(len(found), len(gold))),
        "precision": _ratio(both, len(found)),
        "recall": _ratio(both, len(gold)),
        "missing": _ratio(len(missing), len(gold)),
        "extra": _ratio(len(extra), len(gold)),
        "wrong_operators": _ratio(len(wrong_operators), len(extra)),
        "inverted_operands": _ratio(len(inverted), len(extra)),
        "repetitions": _ratio(len(written) - len(found), len(written)),
    }
    found_shares: dict[str, float | None] = {name: share if gold else None for name, share in shares.items()}
    return found_shares | {"right_arithmetic": sum(checked) / len(checked) if checked else None}


@lru_cache(maxsize=65536)
def parse(step: str) -> Step:
    """Read one step: an equation (`2*3=6`), a call (`multiply(n0,n1)`), or, where it is neither, a plain string."""
    text = "".join(step.split())
    if len(text) > MAX_CHARACTERS:
        return Step(text, (), (text,), None)
    if call := re.fullmatch(r"([a-z_]+)\((.*)\)", text.lower()):
        name, operands = call.group(1), tuple(call.group(2).split(","))
        key = (name, *(sorted(operands) if name in _COMMUTATIVE else operands))
        return Step(key, (name,), operands, None)
    trees = [_tree(side) for side in text.split("=")]
    if trees[0] is None:
        return Step(text, (), (text,), None)
    operators: list[str] = []
    operands_found: list[Any] = []
    key = _read(trees[0], operators, operands_found)
    values = [None if tree is None else _value(tree) for tree in trees]
    is_right = None if len(values) < 2 else all(_close(left, right) for left, right in pairwise(values))
    return Step(key, tuple(operators), tuple(operands_found), is_right)


def evaluate_expression(text: str) -> Fraction | None:
    """The exact value of an expression of decimal numbers, `+ - * /`, signs and brackets; None for anything else."""
    text = "".join(text.split())
    tree = _tree(text) if len(text) <= MAX_CHARACTERS else None
    return None if tree is None else _value(tree)


_SIGNS: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPUTE: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _tree(text: str) -> ast.expr | None:
    """A syntax tree of numbers and `+ - * /` alone, or None."""
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text.replace("$", ""))
    text = re.sub(r"(?<![0-9.])0+(?=[0-9])", "", text)  # Python refuses 05
    text = re.sub(r"([0-9]*\.?[0-9]+)%", r"(\1/100)", text)
    if not re.fullmatch(r"[0-9.+\-*/()]+", text) or "**" in text or "//" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if all(map(_is_allowed, ast.walk(tree))) else None


def _is_allowed(node: ast.AST) -> bool:
    allowed = (ast.BinOp, ast.UnaryOp, ast.UAdd, ast.USub, *_SIGNS)
    return isinstance(node, allowed) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))


def _value(tree: ast.expr) -> Fraction | None:
    match tree:
        case ast.Constant(value=int() | float() as number):
            return Fraction(repr(number)) if math.isfinite(number) else None
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand)
            return -value if value is not None and isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left), _value(right)
            sign = _SIGNS[type(op)]
            if a is None or b is None or (sign == "/" and b == 0):
                return None
            return _COMPUTE[sign](a, b)
    return None


def _read(tree: ast.expr, operators: list[str], operands: list[Any]) -> Any:
    """The key of a tree; its operators and operands are appended in the order in which they are written."""
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            sign = _SIGNS[type(op)]
            first = _read(left, operators, operands)
            operators.append(sign)
            second = _read(right, operators, operands)
            if sign not in _COMMUTATIVE:
                return (sign, first, second)
            terms = [term for side in (first, second) for term in (side[1:] if side[0] == sign else (side,))]
            return (sign, *sorted(terms, key=repr))
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp() as inner):
            operators.append("-")
            return ("-", _read(inner, operators, operands))
    value = _value(tree)
    operands.append(value)
    return ("number", str(value))


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return sorted(first, key=repr) == sorted(second, key=repr)


def _close(left: Fraction | None, right: Fraction | None) -> bool:
    return left is not None and right is not None and numbers.equal(left, right)
