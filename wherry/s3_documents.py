"""The XML documents of S3 that the client reads: errors, and pages of a list of objects.

They come from a server, so a document type, whose entities grow without a limit, is rejected, and so are deep and many
elements and long tags. Only the elements that the client uses are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from xml.parsers import expat

from kube.clock import parse_time

Records = list[tuple[str, str]]
"""Paths of elements without namespaces, such as `/Error/Code`, with their texts, in the order of their ends."""

DEPTH = 32
"""Levels of elements; documents of S3 have five."""
LONGEST = 4096
"""Characters that are kept of an element; names of objects have at most 1024 bytes."""
MOST_ELEMENTS = 100_000
"""Elements of a document; services send pages of at most 1000 objects, of some ten elements each."""
LARGEST_SIZE = 1 << 60
"""Bytes of an object; S3 allows 50 TB."""
PIECE, LONGEST_TAG = 64 << 10, 256 << 10
"""Bytes that are parsed at once, and bytes of a tag, which the parser keeps until its end."""

ERROR, PAGE = "/Error", "/ListBucketResult"
CODE, MESSAGE = f"{ERROR}/Code", f"{ERROR}/Message"
OBJECT, MORE, TOKEN = f"{PAGE}/Contents", f"{PAGE}/IsTruncated", f"{PAGE}/NextContinuationToken"
KEY, SIZE, CHANGED = f"{OBJECT}/Key", f"{OBJECT}/Size", f"{OBJECT}/LastModified"
_PATHS = frozenset((ERROR, CODE, MESSAGE, PAGE, OBJECT, MORE, TOKEN, KEY, SIZE, CHANGED))


class NotS3(Exception):
    """A document that no S3 service sends."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a bucket: its name (key), bytes, and the time of its last change in seconds since 1970."""

    name: str
    size: int
    changed: float


class _Reader:
    """Collects the elements that are used, with the first LONGEST characters of their texts."""

    def __init__(self) -> None:
        self.found: Records = []
        self._path: list[str] = []
        """The path of each open element; empty for one that is not used."""
        self._text: list[str] = []
        self._left = self._elements = 0

    def start(self, name: str, _: Any) -> None:
        parent = self._path[-1] if self._path else ""
        path = f"{parent}/{name.rpartition(':')[2]}" if parent or not self._path else ""
        if path not in _PATHS:
            path = ""
        self._elements += 1
        if len(self._path) == DEPTH:
            raise NotS3(f"its elements have more than {DEPTH} levels")
        if self._elements > MOST_ELEMENTS:
            raise NotS3(f"it has more than {MOST_ELEMENTS} elements")
        self._path.append(path)
        self._text, self._left = [], LONGEST

    def end(self, _: str) -> None:
        if path := self._path.pop():
            self.found.append((path, "".join(self._text)))
        self._text, self._left = [], LONGEST

    def text(self, data: str) -> None:
        if self._left and self._path and self._path[-1]:
            self._text.append(data[: self._left])
            self._left -= min(len(data), self._left)

    def refuse(self, *_: Any) -> None:
        raise NotS3("the document has a document type")


def records(document: bytes) -> Records:
    """Parse a document; raises NotS3."""
    parser, reader = expat.ParserCreate(), _Reader()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = reader.text, reader.refuse
    try:
        for begin in range(0, len(document), PIECE):
            parser.Parse(document[begin : begin + PIECE], False)
            if begin - parser.CurrentByteIndex > LONGEST_TAG:
                raise NotS3(f"a tag has more than {LONGEST_TAG >> 10} KiB")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise NotS3(f"the document is no XML: {error}") from error
    return reader.found


def error(document: bytes) -> tuple[str, str]:
    """Return the code and the message of an error, empty if the document is none."""
    try:
        found = dict(records(document))
    except NotS3:
        return "", ""
    return found.get(CODE, ""), found.get(MESSAGE, "")


def page(document: bytes) -> tuple[list[StoredObject], str]:
    """Return the objects of a page and the token of the next one, empty on the last page; raises NotS3."""
    found = records(document)
    last = dict(found)
    if PAGE not in last:
        raise NotS3("the document is no list of objects")
    if any(len(text) == LONGEST for _, text in found):
        raise NotS3(f"a text has more than {LONGEST - 1} characters")
    return list(_objects(found)), last.get(TOKEN, "") if last.get(MORE) == "true" else ""


def _objects(found: Records) -> Iterator[StoredObject]:
    fields: dict[str, str] = {}
    for path, text in found:
        if path == OBJECT:
            yield _object(fields)
            fields = {}
        else:
            fields[path] = text


def _object(fields: dict[str, str]) -> StoredObject:
    try:
        changed: datetime = parse_time(fields[CHANGED])
        if (size := int(fields[SIZE])) > LARGEST_SIZE:
            raise ValueError(f"its size is {fields[SIZE][:40]}")
        return StoredObject(fields[KEY], size, changed.timestamp())
    except KeyError as error:
        raise NotS3(f"an object of the list is incomplete: it has no {error.args[0].rpartition('/')[2]}") from error
    except (ValueError, OverflowError) as error:
        raise NotS3(f"an object of the list is invalid: {error}") from error
