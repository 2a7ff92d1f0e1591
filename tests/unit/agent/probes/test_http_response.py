"""Answers of containers, by Go's rules."""

from __future__ import annotations

import pytest

from agent.http_response import BROKEN, PIECES, Body, BodyError, ResponseError, headers_of

OK = b"HTTP/1.1 200 OK\r\n"


def test_names_are_lowered_values_are_stripped_and_folded_lines_are_joined() -> None:
    head = OK + b"Location:\t /a \r\nX: 1\n 2\r\n\t3\r\nx:4\r\n\r\n"
    assert headers_of(head) == {b"location": [b"/a"], b"x": [b"1 2 3", b"4"]}


@pytest.mark.parametrize("line", [b"no colon", b"a b: c", b"a : c", b": c", b"X: a\x00", b"X: \x7f", b" X: first"])
def test_a_line_that_is_no_header_is_quoted(line: bytes) -> None:
    with pytest.raises(ResponseError) as raised:
        headers_of(OK + line + b"\r\n\r\n")
    assert str(raised.value) == f"{BROKEN}malformed MIME header line: {line.decode()}"


def body(head: bytes, *pieces: bytes, status: int = 200, most: int = 100) -> Body:
    found = Body(status, headers_of(OK + head + b"\r\n"), most)
    for piece in pieces:
        found.feed(piece)
    return found


CHUNKED = b"Transfer-Encoding: Chunked\r\n"


@pytest.mark.parametrize(
    ("head", "pieces", "content", "done"),
    [
        (b"Content-Length: 4\r\n", [b"we", b"ll"], b"well", True),
        (b"Content-Length: 4\r\nContent-Length: 4\r\n", [b"well, and more"], b"well", True),
        (b"Content-Length: 0\r\n", [], b"", True),
        (b"", [b"we", b"ll"], b"well", False),
        (CHUNKED, [b"4;a=b\r\nwell\r\n0\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\n"], b"well", True),
        (CHUNKED + b"Content-Length: 1\r\n", [b"4\r\nwe", b"ll\r\n"], b"well", False),
        (CHUNKED, [b"1\r\na\r\n" * 1000], b"a" * 100, False),
        (CHUNKED, [b"64\r\n" + b"a" * 100 + b"\r\nnothing that is a chunk"], b"a" * 100, False),
    ],
)
def test_a_body_ends_as_its_headers_specify(head: bytes, pieces: list[bytes], content: bytes, done: bool) -> None:
    found = body(head, *pieces)
    assert (found.content, found.done) == (content, done)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    assert body(b"Content-Length: 4\r\n", status=status).done


def test_so_many_chunks_are_read_at_most() -> None:
    assert body(CHUNKED, b"1\r\na\r\n" * 1000, most=1000).content == b"a" * PIECES


def test_only_a_body_without_a_length_ends_with_the_connection() -> None:
    found = body(b"", b"well")
    found.end()
    assert found.done
    for head in (CHUNKED, b"Content-Length: 5\r\n"):
        with pytest.raises(BodyError, match="unexpected EOF"):
            body(head, b"4\r\n").end()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"Transfer-Encoding: gzip\r\n", 'unsupported transfer encoding: "gzip"'),
        (CHUNKED * 2, 'unsupported transfer encoding: "Chunked, Chunked"'),
        (b"Content-Length: -1\r\n", 'bad Content-Length "-1"'),
        (b"Content-Length: " + b"9" * 19 + b"\r\n", 'bad Content-Length "9999999999999999999"'),
        (
            b"Content-Length: 1\r\nContent-Length: 2\r\n",
            'http: message cannot contain multiple Content-Length headers; got ["1" "2"]',
        ),
    ],
)
def test_headers_without_the_bodys_length_fail_the_probe(head: bytes, message: str) -> None:
    with pytest.raises(ResponseError) as raised:
        body(head)
    assert str(raised.value) == BROKEN + message
