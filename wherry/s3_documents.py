"""The XML documents of S3 that the client reads: errors, and pages of a list of objects.

They come from a server, so a document type, whose entities grow without a limit, is rejected.
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


class NotS3(Exception):
    """A document that no S3 service sends."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a bucket: its name (key), bytes, and the time of its last change in seconds since 1970."""

    name: str
    size: int
    changed: float


def records(document: bytes) -> Records:
    """Parse a document; raises NotS3."""
    parser = expat.ParserCreate()
    path: list[str] = []
    texts: list[list[str]] = []
    found: Records = []

    def start(name: str, _: Any) -> None:
        path.append(name.rpartition(":")[2])
        texts.append([])

    def end(_: str) -> None:
        found.append(("/" + "/".join(path), "".join(texts.pop())))
        path.pop()

    def text(data: str) -> None:
        if texts:
            texts[-1].append(data)

    def refuse(*_: Any) -> None:
        raise NotS3("the document has a document type")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise NotS3(f"the document is no XML: {error}") from error
    return found


def error(document: bytes) -> tuple[str, str]:
    """Return the code and the message of an error, empty if the document is none."""
    try:
        found = dict(records(document))
    except NotS3:
        return "", ""
    return found.get("/Error/Code", ""), found.get("/Error/Message", "")


def page(document: bytes) -> tuple[list[StoredObject], str]:
    """Return the objects of a page and the token of the next one, empty on the last page; raises NotS3."""
    found = records(document)
    last = dict(found)
    if "/ListBucketResult" not in last:
        raise NotS3("the document is no list of objects")
    more = last.get("/ListBucketResult/IsTruncated") == "true"
    return list(_objects(found)), last.get("/ListBucketResult/NextContinuationToken", "") if more else ""


def _objects(found: Records) -> Iterator[StoredObject]:
    start = "/ListBucketResult/Contents"
    fields: dict[str, str] = {}
    for path, text in found:
        if path == start:
            yield _object(fields)
            fields = {}
        elif path.startswith(start):
            fields[path.removeprefix(start + "/")] = text


def _object(fields: dict[str, str]) -> StoredObject:
    try:
        changed: datetime = parse_time(fields["LastModified"])
        return StoredObject(fields["Key"], int(fields["Size"]), changed.timestamp())
    except (KeyError, ValueError) as error:
        raise NotS3(f"an object of the list is incomplete: {error}") from error
