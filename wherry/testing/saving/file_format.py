"""The format of saved files: gzip of two JSON documents, a header in the first line and the contents in the second.

The header names the format and its version, so that a file of another kind or of a newer Wherry is recognized before its
contents are read. Files are readable by their owner alone: they contain Secrets.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from kube import decode_errors
from kube.files import write_file
from wherry import VERSION, os_errors
from wherry.testing.errors import ClusterError

T = TypeVar("T")
FORMAT = 1
"""Version of the format: a reader accepts this one and earlier ones."""
MODE = 0o600
MOST_BYTES = 1 << 30
"""Bytes of the contents, uncompressed."""
HEADER_BYTES = 1 << 16
Content = Literal["cluster", "history"]
_NOUNS = {"cluster": "a saved cluster", "history": "the history of a test"}


class _Header(msgspec.Struct):
    wherry_testing: Content
    format: int
    version: str
    """Version of Wherry that wrote the file."""


def write(path: Path, content: Content, body: object) -> None:
    """Write a file, whole or not at all, with mode 0600. Raise ClusterError."""
    header = msgspec.json.encode(_Header(content, FORMAT, VERSION))
    data = gzip.compress(b"%b\n%b\n" % (header, msgspec.json.encode(body)), compresslevel=1, mtime=0)
    try:
        write_file(path, data, MODE)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {os_errors.reason(error)}") from error


def read(path: Path, content: Content, type: type[T]) -> T:
    """Return the contents of a file. Raise ClusterError with one sentence for one that cannot be used."""
    try:
        with gzip.open(path) as file:
            _check(path, content, file.readline(HEADER_BYTES))
            body = file.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ClusterError(f"{path} is not {_NOUNS[content]}, or is damaged: {error}") from error
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {os_errors.reason(error)}") from error
    if len(body) > MOST_BYTES:
        raise ClusterError(f"{path} has more than {MOST_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(f"{path} is damaged: {decode_errors.sentence(error)}") from error


def _check(path: Path, content: Content, line: bytes) -> None:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(f"{path} is not {_NOUNS[content]}: it has no header of one") from error
    if header.format > FORMAT:
        raise ClusterError(
            f"{path} was written by Wherry {header.version} in format {header.format}: Wherry {VERSION} reads up to {FORMAT}"
        )
    if header.wherry_testing != content:
        raise ClusterError(f"{path} is {_NOUNS[header.wherry_testing]}, not {_NOUNS[content]}")
