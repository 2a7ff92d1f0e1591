from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.client import lines
from kube.errors import StatusError


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ((b"one\ntwo\n",), [b"one", b"two"]),
        ((b"o", b"n", b"e\nt", b"wo", b"\n"), [b"one", b"two"]),
        (
            (
                b"one\n\n",
                b"\n",
                b"two\nrest",
            ),
            [b"one", b"two"],
        ),
        ((b"one", b"\n\ntwo\n"), [b"one", b"two"]),
        ((b"rest",), []),
    ],
)
async def test_lines_are_put_together_from_chunks(parts: tuple[bytes, ...], found: list[bytes]) -> None:
    assert [line async for line in lines(chunks(*parts))] == found


class Counted(bytes):
    """A chunk that is never appended to a longer one."""

    def __radd__(self, other: bytes) -> bytes:
        raise AssertionError("copied again with each chunk")


@pytest.mark.parametrize(
    "parts", [(b"12345678901\n",), (b"1\n12345", b"678901"), (b"123456", b"78901\n"), (b"1\n12345678901\n2\n",)]
)
async def test_a_line_that_is_too_long_is_an_error_also_before_its_end(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(StatusError, match="longer than 10 bytes"):
        _ = [line async for line in lines(chunks(*parts), 10)]


async def test_lines_of_the_longest_size_are_read() -> None:
    read = lines(chunks(b"12345", b"67890\n1234567890\n", b"1234567890", b"\n"), 10)
    assert [line async for line in read] == [b"1234567890"] * 3


async def test_a_long_line_is_put_together_once() -> None:
    assert [len(line) async for line in lines(chunks(b"A", *[Counted(b"A" * 1000)] * 1000, b"\n"))] == [1_000_001]
