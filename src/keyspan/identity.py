"""Frozen specs, their canonical JSON, and the hashes made from it.

A spec is a frozen dataclass that says what was chosen and nothing else. Its canonical JSON has sorted keys and one
spelling of every number; its hash is an identity (docs/identity.md).
"""

from __future__ import annotations

import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from keyspan.errors import BadInput, shown

_registry: dict[str, type[Spec]] = {}


class Spec:
    """Base of every spec: coerces and checks its fields, and turns into canonical JSON.

    Subclasses are `@dataclass(frozen=True, kw_only=True)` with a `family` (the name in JSON) and a `version` (raised
    when the meaning changes, hashed wherever the spec is used). A field added later carries
    `metadata={"absent": old_value}` and is left out of the JSON at that value, so that old ids stay.
    """

    family: ClassVar[str]
    version: ClassVar[int]

    def __init_subclass__(cls, family: str, version: int, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.family, cls.version = family, version
        known = _registry.setdefault(family, cls)
        if known is not cls and known.__qualname__ != cls.__qualname__:
            raise TypeError(f"The family {family!r} is {known.__qualname__}'s; give {cls.__qualname__} another name.")
        _registry[family] = cls

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            object.__setattr__(self, name, _coerce(getattr(self, name), hint, f"{self.family}.{name}"))
        self.check()

    def check(self) -> None:
        """Raise `BadInput` unless the fields make sense together."""

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON data, with its family and version."""
        data: dict[str, Any] = {"family": self.family, "version": self.version}
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if "absent" not in f.metadata or value != f.metadata["absent"]:
                data[f.name] = _plain(value)
        return data

    @cached_property
    def text(self) -> str:
        """The spec as canonical JSON. A sweep asks for the ids of a million runs that share their parts."""
        return canonical(self.to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote (its module must have been imported)."""
        spec = decode(data)
        if not isinstance(spec, cls):
            raise BadInput(f"The spec must be a {cls.__name__}, but got family={shown(data.get('family'))}.")
        return spec


_known_hints: dict[type[Spec], dict[str, Any]] = {}


def _hints(cls: type[Spec]) -> dict[str, Any]:
    if cls not in _known_hints:
        hints = typing.get_type_hints(cls)
        _known_hints[cls] = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    return _known_hints[cls]


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """One spelling for every value: 2 becomes 2.0 where a float is meant, lists become tuples; NaN is refused."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        if value is None and type(None) in args:
            return None
        (inner,) = [a for a in args if a is not type(None)]
        return _coerce(value, inner, where)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise BadInput(f"`{where}` must be a list, but got {shown(value)}.")
        return tuple(_coerce(v, args[0], where) for v in value)
    if hint in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        return _number(value, hint, where)
    if isinstance(hint, type) and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        kind = "a number" if hint is float else hint.__name__
        raise BadInput(f"`{where}` must be {kind}, but got {shown(value)}.")
    return value


def _number(value: Real, hint: type, where: str) -> int | float:
    """Numbers of any type (NumPy's too) as a plain int or float."""
    if hint is int and isinstance(value, Integral):
        return _whole(int(value), where)
    try:
        number = float(value)
    except OverflowError:
        raise BadInput(f"`{where}` must fit a float, but got {shown(value)}. Give a smaller number.") from None
    if not math.isfinite(number):
        raise BadInput(f"`{where}` must be finite, but got {number}. NaN and infinities have no identity.")
    if hint is float:
        return number + 0.0  # -0.0 and 0.0 are one number, so they get one spelling
    if not number.is_integer():
        raise BadInput(f"`{where}` must be int, but got {shown(value)}.")
    return _whole(int(number), where)


def _whole(number: int, where: str) -> int:
    if not -(2**63) <= number < 2**63:
        raise BadInput(f"`{where}` must fit 64 bits, but got {shown(number)}. Give a smaller number.")
    return number


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def decode(data: Any) -> Spec:
    """JSON data -> spec, by its family. Unknown families, fields and versions are refused, never guessed."""
    if not isinstance(data, Mapping) or "family" not in data:
        raise BadInput(f"A spec must be an object with a `family`, but got {shown(data)}.")
    cls = _registry.get(str(data["family"]))
    if cls is None:
        raise BadInput(f"The family of a spec must be one of {sorted(_registry)}, but got {shown(data['family'])}.")
    if data.get("version", cls.version) != cls.version:
        raise BadInput(
            f"`{cls.family}` must have version {cls.version}, but got {data['version']}. Use the keyspan that wrote it."
        )
    given = {k: v for k, v in data.items() if k not in ("family", "version")}
    unknown = set(given) - {f.name for f in fields(cls)}  # type: ignore[arg-type]
    if unknown:
        raise BadInput(f"`{cls.family}` must have known fields only, but got {sorted(unknown)}.")
    try:
        old = {f.name: f.metadata["absent"] for f in fields(cls) if "absent" in f.metadata}  # type: ignore[arg-type]
        return cls(**(old | {k: _undo(v) for k, v in given.items()}))
    except TypeError as error:
        raise BadInput(f"`{cls.family}` must have all its fields, but {error}.") from None


def is_known(family: str, version: Any) -> bool:
    """Whether specs of this family and version can be decoded here."""
    return family in _registry and _registry[family].version == version


def _undo(value: Any) -> Any:
    if isinstance(value, Mapping):
        return decode(value)
    if isinstance(value, list):
        return tuple(_undo(v) for v in value)
    return value


def canonical(data: Any) -> str:
    """JSON with sorted keys, no spaces, shortest float spelling; NaN and infinities are refused."""
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"A spec must hold JSON values and finite numbers only, but {error}.") from None


def digest(data: Any, prefix: str) -> str:
    """Identity of JSON data: the prefix and 96 bits of SHA-256 over its canonical form."""
    return hashed(canonical(data), prefix)


def hashed(text: str, prefix: str) -> str:
    """The prefix and 96 bits of SHA-256 over a text."""
    return prefix + hashlib.sha256(text.encode()).hexdigest()[:24]
