"""Conditions on a cell's fields, as `items >= 4 * d_model and graph != "bipartite"`: a small part of Python's grammar.

Names are the cell's fields, numbers may be computed with, and nothing can be called but the functions listed here.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from keyspan.errors import BadInput, shown
from keyspan.theory.bounds import law

LONGEST = 500
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "law": law,
    "log": math.log,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Condition:
    """A condition, read once and asked of many cells."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise BadInput(f"A condition must have at most {LONGEST} characters, but got {len(text)}. Split it.")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "msg", None) or str(error)
            raise BadInput(
                f"A condition must be as `items >= 4 * d_model`, but got {shown(text)} ({why}). Correct it."
            ) from None

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Whether it is true of these fields."""
        try:
            value = self._value(self._tree, fields)
        except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
            if isinstance(error, BadInput):
                raise
            got = f"{error} for {shown(dict(fields))}"
            raise BadInput(
                f"The condition {shown(self.text)} must make sense in every cell, but got: {got}. Mend it."
            ) from None
        if not isinstance(value, bool):
            raise BadInput(f"The condition {shown(self.text)} must be true or false, but got {shown(value)}. Compare it.")
        return value

    def _value(self, node: ast.AST, fields: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=name):
                return self._field(name, fields)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._value(part, fields) for part in parts]
            case ast.BoolOp(op=op, values=parts):
                every = (self._truth(part, fields) for part in parts)
                return all(every) if isinstance(op, ast.And) else any(every)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return not self._truth(part, fields)
            case ast.UnaryOp(op=ast.USub(), operand=part):
                return -self._number(part, fields)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NUMBERS:
                return _NUMBERS[type(op)](self._number(left, fields), self._number(right, fields))
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._value(part, fields) for part in (left, *others)]
                if all(type(op) in _COMPARED for op in ops):
                    return all(_COMPARED[type(op)](a, b) for a, op, b in zip(values, ops, values[1:], strict=False))
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*(self._number(part, fields) for part in parts))
        raise BadInput(
            f"A condition must be made of fields, numbers, comparisons and {', '.join(FUNCTIONS)}, but got "
            f"{shown(ast.unparse(node))}. Leave that out."
        )

    def _field(self, name: str, fields: Mapping[str, Any]) -> Any:
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise BadInput(f"A condition must name fields of its cell ({known}), but got {shown(name)}. Correct it.")
        return fields[name]

    def _truth(self, node: ast.AST, fields: Mapping[str, Any]) -> bool:
        value = self._value(node, fields)
        if not isinstance(value, bool):
            raise BadInput(f"`and`, `or` and `not` must join true or false, but got {shown(value)}. Compare something.")
        return value

    def _number(self, node: ast.AST, fields: Mapping[str, Any]) -> int | float:
        value = self._value(node, fields)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"Arithmetic must be done with numbers, but got {shown(value)} in {shown(self.text)}. Correct it.")
        return value
