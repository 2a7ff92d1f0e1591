from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.client import lines


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


async def test_a_long_line_is_put_together_once() -> None:
    assert [len(line) async for line in lines(chunks(b"A", *[Counted(b"A" * 1000)] * 1000, b"\n"))] == [1_000_001]
