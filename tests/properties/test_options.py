"""Global options: wherever they stand among the other words, they mean the same and leave the others as they were."""

import os
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keyspan.cli.options import DEFAULT_STORE, FLAGS, VALUES, Options, split
from keyspan.errors import BadInput

GLOBAL = (*FLAGS, *VALUES)
STORES = st.text(min_size=1, max_size=20)
SEEDS = st.integers(0, 2**31 - 1)
WORDS = st.text(max_size=10).filter(lambda word: word != "--" and word.partition("=")[0] not in GLOBAL)


@st.composite
def spoken(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[str]]]:
    """Some global options, as fields and as words; each value after a space or after `=`."""
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "json": st.just(True),
                "quiet": st.just(True),
                "dry_run": st.just(True),
                "store": STORES,
                "device": st.sampled_from(["auto", "cpu", "cuda"]),
                "seed": SEEDS,
            },
        )
    )
    groups = []
    for name, value in fields.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            groups.append([flag])
        else:
            groups.append([f"{flag}={value}"] if draw(st.booleans()) else [flag, str(value)])
    return fields, draw(st.permutations(groups))


@given(spoken=spoken(), rest=st.lists(WORDS, max_size=6), data=st.data())
def test_anywhere(spoken: tuple[dict[str, Any], list[list[str]]], rest: list[str], data: st.DataObject) -> None:
    fields, groups = spoken
    argv = [[word] for word in rest]
    for group in groups:
        argv.insert(data.draw(st.integers(0, len(argv))), group)
    with mock.patch.dict(os.environ):
        os.environ.pop("KEYSPAN_STORE", None)
        options, left = split([word for group in argv for word in group])
    assert left == rest
    assert options == Options(**fields)
    assert options.store == fields.get("store", DEFAULT_STORE)


@given(argv=st.lists(st.text(max_size=10) | st.sampled_from([*GLOBAL, "--", "--seed=3", "--store=x", "--seed=x"]), max_size=8))
def test_any_words_are_read_or_refused(argv: list[str]) -> None:
    """Whatever is typed, bad input is the only complaint, and nothing but global options is taken away."""
    try:
        _, rest = split(argv)
    except BadInput as refused:
        line = str(refused)
        assert " must " in line and "but got" in line
        return
    words = iter(argv)
    assert all(word in words for word in rest)  # in the same order


@given(before=st.lists(WORDS, max_size=3), after=st.lists(st.sampled_from([*GLOBAL, "x"]), max_size=4))
def test_nothing_is_taken_after_two_dashes(before: list[str], after: list[str]) -> None:
    options, rest = split([*before, "--", *after])
    assert rest == [*before, "--", *after] and not options.json and options.seed == 0


@given(first=SEEDS, last=SEEDS)
def test_the_last_one_counts(first: int, last: int) -> None:
    assert split(["--seed", str(first), "design", f"--seed={last}"])[0].seed == last


@given(store=STORES, named=STORES)
def test_the_option_before_the_environment(store: str, named: str) -> None:
    assume("\0" not in named and all(ord(c) < 0xD800 for c in named))
    with mock.patch.dict(os.environ, KEYSPAN_STORE=named):
        assert split([])[0].store == named
        assert split(["--store", store])[0].store == store


@given(seed=st.integers().filter(lambda seed: not 0 <= seed < 2**31))
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(BadInput, match=str(seed)):
        split(["--seed", str(seed)])
