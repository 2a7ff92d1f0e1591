"""Queries are read as Go's net/url reads them: malformed pairs count for nothing."""

from __future__ import annotations

import pytest

from control.http import query
from control.http.exchange import Request

CASES = {
    "": {},
    "a=b&a=c&d": {"a": ["b", "c"], "d": [""]},
    "&&a=b&": {"a": ["b"]},
    "a=b=c": {"a": ["b=c"]},
    "=b": {"": ["b"]},
    "a+b=c+d%2Be%26": {"a b": ["c d+e&"]},
    "%61=%C3%A9": {"a": ["é"]},
    "a=\xc3\xa9": {"a": ["é"]},
    "a=%ff": {"a": ["\ufffd"]},
    "a=%zz&b=1": {"b": ["1"]},
    "a=%&b=%4&c=%4g&d=%%41&e=1": {"e": ["1"]},
    "%zz=1&a=1": {"a": ["1"]},
    "a=1;b=2&c=3": {"c": ["3"]},
    "a=x%3By": {"a": ["x;y"]},
    "fieldSelector=metadata.name%3Dmine,metadata.name!%3D%zz": {},
}


async def nothing(limit: int) -> bytes:
    return b""


@pytest.mark.parametrize("text", CASES)
def test_a_query_is_read_as_go_reads_it(text: str) -> None:
    request = Request("GET", "/version", text.encode("latin-1"), {}, nothing)
    assert request.query == CASES[text]


@pytest.mark.parametrize("text", CASES)
def test_a_query_that_is_passed_on_reads_the_same(text: str) -> None:
    found = query.read(text.encode("latin-1"))
    assert query.read(query.write(found).encode()) == found
