"""A model's settings, asked one at a time: each has a type and a range, and what is wrong is said in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from keyspan.errors import BadInput
from keyspan.files.paths import shown

MOST = 2**24  # of anything that is counted
MOST_LAYERS = 2**12
MOST_HEADS = 2**14
MOST_WIDTH = 2**17  # of hidden states, of heads, of latents


class Settings:
    """The values of `config.json`, or of a table in it. name: how the file is called in an error"""

    def __init__(self, values: Mapping[str, Any], name: str = "config.json") -> None:
        self.values = values
        self.name = name

    def has(self, key: str) -> bool:
        """Whether there is a value, and it is not null."""
        return self.values.get(key) is not None

    def whole(self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST) -> int:
        """A whole number between `least` and `most`."""
        value = self._value(key, default)
        if type(value) is not int or not least <= value <= most:
            self._refuse(key, f"a whole number from {least} to {most}", value)
        return value

    def width(self, key: str, default: int | None = None) -> int:
        """A whole number that something is wide."""
        return self.whole(key, default, most=MOST_WIDTH)

    def number(self, key: str, default: float | None = None, *, least: float | None = None) -> float:
        """A finite number, at least `least`."""
        value = self._value(key, default)
        if not _finite(value):
            self._refuse(key, "a finite number", value)
        if least is not None and value < least:
            self._refuse(key, f"at least {least}", value)
        return float(value)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """So many finite numbers above zero."""
        value = self._value(key, None)
        if not isinstance(value, list) or len(value) != count or not all(_finite(n) and n > 0 for n in value):
            self._refuse(key, f"{count} numbers above 0", value)
        return tuple(float(number) for number in value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            self._refuse(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A word."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self._refuse(key, "a text", value)
        return value

    def texts(self, key: str) -> list[str] | None:
        """A list of words, or None where there is none."""
        value = self.values.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            self._refuse(key, "a list of texts", value)
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        """A table, empty where there is none."""
        value = self.values.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._refuse(key, "a table", value)
        return value

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def _refuse(self, key: str, rule: str, value: Any) -> NoReturn:
        got = "none" if value is None else shown(value)
        raise BadInput(f"`{key}` in `{self.name}` must be {rule}, but got {got}. Copy it from the model's own file.")


def layers_of(settings: Settings, key: str = "num_hidden_layers", default: int | None = None) -> range:
    """The numbers of the layers."""
    return range(settings.whole(key, default, most=MOST_LAYERS))


def heads_of(settings: Settings, key: str = "num_attention_heads", default: int | None = None) -> int:
    """How many query heads a layer has."""
    return settings.whole(key, default, most=MOST_HEADS)


def kv_heads_of(settings: Settings, heads: int, default: int | None = None) -> int:
    """How many key heads a layer has: a divisor of the query heads, which share them in groups."""
    found = settings.whole("num_key_value_heads", heads if default is None else default, most=MOST_HEADS)
    if heads % found:
        got = f"{found} for {heads} query heads"
        raise BadInput(f"Key heads in `{settings.name}` must divide the query heads, but got {got}. Check the file.")
    return found


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300  # NaN is not; an int may be larger than any float
