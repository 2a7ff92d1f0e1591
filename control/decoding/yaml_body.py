"""YAML bodies as JSON values: one document, read from the parser's events in one pass, with a limit on everything that costs.

No aliases (a few lines of them expand to gigabytes), bounded depth, a bounded number of values and of directives. Values are
those of Go's yaml.v2 (`yaml_scalars.py`), errors in its words. JSON is YAML too and what kubectl sends as an apply patch, so
text that begins as an object is tried as JSON first, at C speed.
"""

from __future__ import annotations

import codecs
import json
import marshal
import re
from typing import Any, NoReturn

import yaml

from control.decoding import yaml_scalars
from control.decoding.yaml_document import Document, build
from control.event_loop import offload
from control.event_loop.weight import weight
from kube.nesting import check_nesting
from kube.value_count import check_count

MOST_DIRECTIVES = 16
"""Lines of %YAML and %TAG: libyaml compares each with all before it."""
INLINE = 16 * 1024
"""Weight of YAML that is read on the event loop; reading costs twenty times what it does with JSON."""
_BREAK = "\r\n\x85\u2028\u2029"
_CONTENT = re.compile(rf"(?:\A|[{_BREAK}])[ \t]*+(?=[^# \t{_BREAK}])")
"""Matches up to the first character of a line that is neither empty nor a comment."""
_REST = re.compile(f"(?:[ \t{_BREAK}]++|#[^{_BREAK}]*+|[.]{{3}}(?=[ \t{_BREAK}]|$))*+")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ReadBody(bytes):
    """A body that was parsed ahead of its decoder: its document, or the error.

    The document's value is kept as bytes, a tenth of what its objects take: many requests may wait for their turns.
    """

    value: bytes | None = None
    repeated: list[str]
    error: ValueError | None = None


async def read_ahead(body: bytes, user: str) -> bytes:
    """Return a YAML body that the event loop need not read any more: a large one is read beside it, at its user's turn."""
    if weight(body, "yaml") <= INLINE:
        return body
    read = ReadBody(body)

    def work() -> None:
        try:
            document = parse(body)
            read.value, read.repeated = marshal.dumps(document.value), document.repeated
        except ValueError as error:
            read.error = error

    await offload.apart(user, work)
    return read


def load_yaml(body: bytes, *, ours: bool = False) -> Any:
    """Return one YAML document as JSON values; raises ValueError. One of `ours` that is JSON may have any number of values."""
    if isinstance(body, ReadBody):
        return marshal.loads(_value(body))  # noqa: S302 - it was written here
    return parse(body, ours=ours).value


def duplicate_keys(body: bytes) -> list[str]:
    """Return a line for every key that is in its mapping before, in the words of Go's parser; body is valid YAML."""
    return body.repeated if isinstance(body, ReadBody) else parse(body).repeated


def strict_error(lines: list[str]) -> str:
    """Return repeated keys as one error of Go's parser."""
    return "\n  ".join(["yaml: unmarshal errors:", *lines])


def _value(body: ReadBody) -> bytes:
    if body.value is None:
        raise body.error or ValueError("yaml: not read")
    return body.value


def parse(body: bytes, *, ours: bool = False) -> Document:
    """Read one YAML document; raises ValueError, for JSON of too many values TooManyValues."""
    if body[:1] == b"{":
        if not ours:
            check_count(body)
        if (found := _json(body)) is not None:
            return found
    text = _text(body)
    if text.count("%") > MOST_DIRECTIVES and _has_too_many_directives(text):
        raise ValueError(f"yaml: more than {MOST_DIRECTIVES} directives")
    try:
        document, end = build(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {_words(error)}") from error
    if _REST.fullmatch(text, end) is None:
        raise ValueError("yaml: more than one document: send them one at a time")
    return document


def _has_too_many_directives(text: str) -> bool:
    at = 0
    for _ in range(MOST_DIRECTIVES + 1):
        line = _CONTENT.search(text, at)
        if line is None or text[line.end()] != "%":
            return False
        at = line.end() + 1
    return True


def _json(body: bytes) -> Document | None:
    """Read a body that is JSON, where YAML gives it the same value and no key is repeated."""
    if _SURROGATE.search(body):
        return None  # two escapes for one character, which YAML does not take
    try:
        check_nesting(body)
        return Document(json.loads(body, object_pairs_hook=_object, parse_float=_float, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a repeated key")
    return found


def _float(text: str) -> int | float:
    return yaml_scalars.number(float(text))


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _text(body: bytes) -> str:
    """Decode a body as libyaml does: UTF-8, or UTF-16 with a byte order mark."""
    wide = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return body.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("yaml: invalid leading UTF-8 octet") from error


def _words(error: yaml.YAMLError) -> str:
    """Word a syntax error as Go's parser does: its lines count from 0, those of the scanner from 1."""
    if isinstance(error, yaml.reader.ReaderError):
        return str(error.reason)
    problem = getattr(error, "problem", None) or str(error)
    line = 0
    for mark in (getattr(error, "problem_mark", None), getattr(error, "context_mark", None)):
        if mark is not None and mark.line:
            line = mark.line
            break
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    return f"line {line}: {problem}" if line else str(problem)
