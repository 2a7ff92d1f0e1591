"""Answers of containers to probes, and the URLs and headers of the requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from agent import http_get, http_request
from agent.http_response import Body, ResponseError, headers_of
from agent.probes import http as http_probe
from kube import urls
from kube.api import core_v1
from tests.support.cost import Case
from tests.support.cost_cases.inputs import HEAD, OBJECT, cases, combining, fill

OK = b"HTTP/1.1 200 OK\r\n"
END = b"\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked" + END
WORST_LINES: dict[str, Callable[[int], bytes]] = {
    "spaces before a bad byte": fill(b" ", b"X:", b"\0"),
    "spaces in a value before a bad byte": fill(b" ", b"X: a", b"\x01"),
    "tabs and spaces before a bad byte": fill(b" \t", b"X:", b"\x7f"),
    "words before a bad byte": fill(b"a ", b"X:", b"\0"),
    "a name without a colon": fill(b"a"),
    "spaces in a name": fill(b" ", b"X", b":y"),
    "spaces at the beginning": fill(b" "),
    "folded lines": fill(b"\n ", b"X: a"),
    "lines": fill(b"a:b\r\n"),
    "carriage returns": fill(b"\r", b"X: a"),
}
HEADS: dict[str, Callable[[int], bytes]] = {
    "a long version": fill(b"1", b"HTTP/", b" 200 OK" + END),
    "spaces before the status": fill(b" ", b"HTTP/1.1", b"200 OK" + END),
    "digits of the status": fill(b"2", b"HTTP/1.1 ", END),
    "a long reason": fill(b"a ", b"HTTP/1.1 200 ", END),
    "informational answers": fill(b"HTTP/1.1 100 C" + END),
    "a long length": fill(b"9", OK + b"Content-Length: ", END),
    "lengths": fill(b"Content-Length: 1\r\n", OK, b"\r\n"),
    "codings": fill(b"chunked,", OK + b"Transfer-Encoding: ", END),
}
BODIES: dict[str, Callable[[int], bytes]] = {
    "chunks": fill(b"1\r\na\r\n", CHUNKED),
    "digits of a chunk's length": fill(b"0", CHUNKED),
    "spaces after a chunk's length": fill(b" ", CHUNKED + b"5", b"\n\r\n"),
    "spaces of an extension before a bad byte": fill(b" ", CHUNKED + b"5;", b"\n\r\n"),
    "extensions": fill(b";a=b", CHUNKED + b"5", b"\n"),
    "a quoted extension": fill(b"\\a", CHUNKED + b'5;a="', b"\n"),
    "text until the end": fill(b"a", OK + b"\r\n"),
}


def after(before: bytes, build: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: before + build(size) + END


class _Arriving:
    """A connection on which an answer arrives in pieces."""

    def __init__(self, data: bytes, step: int) -> None:
        self._pieces = [data[at : at + step] for at in range(0, len(data), step)]
        self._pieces.reverse()

    async def read(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""


def answer(step: int) -> Callable[[bytes], object]:
    """Read an answer as a probe does, in pieces."""

    async def read(data: bytes) -> bytes:
        connection: Any = _Arriving(data, step)
        status, head, rest = await http_get._head(connection)
        body = Body(status, headers_of(head), 10 << 10)
        await http_get._read_body(connection, body, rest)
        return body.content

    def run(data: bytes) -> object:
        waiting = read(data)
        try:
            waiting.send(None)
        except StopIteration as ended:
            return cast(object, ended.value)
        raise AssertionError("nothing is waited for")

    return run


ANSWERS = (
    HEADS
    | BODIES
    | {f"{name}, in a head": after(OK, build) for name, build in WORST_LINES.items()}
    | {f"{name}, in a trailer": after(CHUNKED + b"0\r\n", build) for name, build in WORST_LINES.items()}
)
URLS: dict[str, Callable[[int], str]] = {
    "combining characters of a host": combining("http://", "/"),
    "combining characters of a host, with tabs": combining("http:/\t/", "/"),
    "combining characters of a host without a scheme": combining("//"),
    "combining characters of a user": combining("http://", "@a/"),
    "combining characters of a path": combining("http://a/"),
    "slashes": fill("/"),
    "steps back": fill("../", "/"),
    "percent signs": fill("%", "/"),
    "a long port": fill("9", "http://a:", "/"),
    "brackets": fill("[", "http://"),
    "at signs": fill("@", "http://"),
}


def request(url: str) -> object:
    return http_request.form(url, {})


def of_host(host: str) -> object:
    return request(http_request.url_of(core_v1.HTTPGetAction(port=80, host=host), "10.0.0.1", 80))


def of_path(path: str) -> object:
    return request(http_request.url_of(core_v1.HTTPGetAction(port=80, path=path), "10.0.0.1", 80))


def location(text: str) -> object:
    return http_probe._resolved("http://10.0.0.1:80/", text.encode())


REFUSED = (ResponseError, EOFError, ValueError)
CASES = [
    *cases("answer", ANSWERS, answer(http_get.READ_BYTES), largest=HEAD, refused=REFUSED),
    *cases("answer in pieces of 100", ANSWERS, answer(100), largest=HEAD, refused=REFUSED),
    *cases("URL", URLS, urls.split.__wrapped__, largest=OBJECT),  # type: ignore[attr-defined]
    *cases("URL of a request", URLS, request, largest=OBJECT),
    *cases("host of a probe", {**URLS, "combining characters": combining()}, of_host, largest=OBJECT),
    *cases("path of a probe", {**URLS, "letters with accents": fill("\u00e9", "/")}, of_path, largest=OBJECT),
    *cases("Location", URLS, location, largest=HEAD),
    Case(
        "header of a probe",
        fill(" ", "a", "\0"),
        lambda value: http_request.form("http://10.0.0.1/", {"X": value}),
        OBJECT,
    ),
]
