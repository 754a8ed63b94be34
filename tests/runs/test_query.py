"""The language of `--where`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.errors import UsageError
from linnet.runs.columns import Column, split_columns
from linnet.runs.query import UNREAD, Query

RUN: Mapping[str, object] = {
    "run": "llama-20260531-015",
    "name": "Wide one",
    "status": "completed",
    "recipe": "warm-start",
    "experiment": None,
    "group": None,
    "tags": ["base", "wide-2"],
    "tag": ["base", "wide-2"],
    "step": 200,
    "time": 5400.0,
    "age": 86_400.0 * 2,
    "created": time.time() - 3600,
    "loss": 1.5,
    "best(loss)": 1.25,
    "loss@200": 1.75,
    "validation/loss": 1.9,
    "acc": math.nan,
    "lr": 1e-3,
    "config.opt.beta": 0.9,
    "tokens": 2_000_000,
    "untied": True,
    "corpus": "Books/moby dick.txt",
    "odd name, really": 7.0,
}


def fits(text: str, *, words: bool = False) -> bool | None:
    return Query(text, words=words).fits(lambda column: RUN.get(_typed(column)))


def _typed(column: Column) -> str:
    return column.name if not column.is_metric else column.text


@pytest.mark.parametrize(
    "text",
    [
        "loss<2 and lr>=1e-3 and tag:base",
        "loss<2 lr>=.001 tag:base",
        "loss < 2 AND lr <= 0.001",
        "loss=1.5",
        "loss==1.5",
        "loss!=1.6",
        "best(loss)<1.3 and loss@200>1.7",
        "best( loss )<1.3",
        "loss>9 or lr=1e-3",
        "loss>9 or (lr=1e-3 and tag:base)",
        "not loss>9",
        "not (loss>9 or lr>1)",
        "!(loss>9) && lr=0.001 | loss>99",
        "tag:wide*",
        "tag:BASE",
        "tag!=narrow",
        "tag~wid",
        "status:completed",
        "name:'wide one'",
        'name~"wide o"',
        "corpus~moby",
        'corpus:"books/*.txt"',
        "recipe=warm-start",
        "step>=200",
        "time>1h and time<2h",
        "age>1d age<1w",
        "created>2020-01-01",
        "tokens=2M",
        "tokens>1_000_000",
        "untied=true",
        "untied:yes",
        "untied!=no",
        "config.opt.beta=0.9",
        '"odd name, really"=7',
        "`odd name, really`>6",
        "run:llama-*-015",
        "validation/loss<2",
    ],
)
def test_a_run_fits(text: str) -> None:
    assert fits(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "loss>=2",
        "loss<2 and lr>1",
        "tag:bas",
        "tag!=base",
        "tag:narrow or tag:deep",
        "experiment:a",
        "experiment!=a",  # it has none
        "acc<1",
        "acc>=0",
        "acc=1",
        "acc!=1",  # NaN
        "acc=nan",
        "nothing<1",
        "nothing!=1",
        "nothing~a",
        "untied=false",
        "name<1",
        "not loss<2",
    ],
)
def test_a_run_does_not_fit(text: str) -> None:
    assert fits(text) is False


def test_and_binds_more_tightly_than_or() -> None:
    assert fits("loss=1.5 or loss=2 and lr=7") is True
    assert fits("(loss=1.5 or loss=2) and lr=7") is False


def test_words_are_looked_for_in_what_a_run_is_called_on_the_board_only() -> None:
    assert fits("wide lla", words=True) is True
    assert fits("status:comp tag:wi", words=True) is True
    assert fits("wide narrow", words=True) is False
    assert fits("wide or narrow", words=True) is True
    assert fits("wide loss<2", words=True) is True
    with pytest.raises(UsageError, match=r"a part of a run's name is run~wide, a tag is tag:wide"):
        Query("wide")


def test_what_is_not_read_yet_decides_only_where_it_must() -> None:
    def value_of(column: Column) -> object:
        return UNREAD if column.is_metric else RUN.get(column.name)

    assert Query("lr=7 and best(loss)<2").fits(value_of) is False
    assert Query("lr=1e-3 or best(loss)<2").fits(value_of) is True
    assert Query("lr=1e-3 and best(loss)<2").fits(value_of) is None
    assert Query("not best(loss)<2").fits(value_of) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`where` is empty"),
        ("  ", "`where` is empty"),
        ("loss <", "`where` 'loss <', at its end: expected a value after '<'"),
        ("loss << 2", "`where` 'loss << 2', at '< 2': expected a value after '<', found '<'"),
        ("loss<two", "at 'two': expected a number, as in 0.5, 1e-3 or 2M after '<', found 'two'"),
        ("age<3x", "expected a time, as in 90s, 15m, 2h or 3d"),
        ("created>yesterday", "expected a date, as in 2026-05-31"),
        ("created=2026-05-31", "created takes < <= > >="),
        ("loss<2 and", "at its end: expected a comparison"),
        ("loss<2 an lr>1", "at 'an lr>1': expected one of .* after 'an', found 'lr>1'; did you mean and?"),
        ("lr in 1e-2", "at 'lr in 1e-2': `in` is no operator; one of several values is lr=1 or lr=2"),
        ("lr is 2", "expected one of .* after 'lr', found 'is'; a part of a run's name is run~lr"),
        ("(loss<2", r"at '\(loss<2': '\(' is never closed"),
        ("loss<2)", r"unexpected '\)'"),
        ("worst(loss)<2", r"worst\(\) does not exist"),
        ("bset(loss)<2", r"bset\(\) does not exist; did you mean best?"),
        ("best(loss<2", r"expected the name of one metric and '\)' after best\("),
        ("best()<2", "expected the name of one metric"),
        ('"loss<2', 'the quote " is never closed'),
        ("status:dead", "status 'dead' does not exist"),
        ("status:complete", "did you mean completed?"),
        ("= 2", "expected a name, found '='"),
        ("and loss<2", "expected a comparison, found 'and'"),
        ("(" * 10_000, "more than 50 parentheses"),
        ("not " * 10_000, "more than 50 parentheses"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")) as error:
        Query(text)
    assert "\n" not in str(error.value)


PIECES = ["loss", "lr", "<", "=", "~", ":", "(", ")", "and", "or", "not", "2", "1e-3", "tag", "'a'", "best(", "@2"]


@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_any_text_is_a_query_or_a_usage_error(text: str) -> None:
    for words in (False, True):
        with suppress(UsageError):
            assert Query(text, words=words).fits(lambda column: RUN.get(column.name)) in (True, False)


names = st.text(st.characters(blacklist_characters='"', blacklist_categories=("Cs",)), min_size=1)
numbers = st.floats(allow_nan=False)


@given(names, st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), numbers, numbers)
def test_any_name_in_quotes_is_compared_as_numbers_are(name: str, operator: str, value: float, limit: float) -> None:
    query = Query(f'"{name}"{operator}{limit!r}')
    (comparison,) = query.comparisons()
    assert comparison.column == Column(name)
    expected = {
        "<": value < limit,
        "<=": value <= limit,
        ">": value > limit,
        ">=": value >= limit,
        "=": value == limit,
        "!=": value != limit,
    }
    if name not in ("created", "time", "age"):
        assert query.fits(lambda column: value) is expected[operator]


def test_columns_are_split_at_commas_that_are_not_part_of_a_name() -> None:
    columns = split_columns('loss,best(validation/loss), lr ,loss@200,"odd, name","a"@3,best("b, c"),')
    assert columns == [
        Column("loss"),
        Column("validation/loss", "best"),
        Column("lr"),
        Column("loss", step=200),
        Column("odd, name"),
        Column("a", step=3),
        Column("b, c", "best"),
    ]
    assert split_columns(",".join(column.text for column in columns)) == columns
