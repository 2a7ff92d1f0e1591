"""Decodes JSON and YAML files with one exception for content that is neither, whichever the decoder raises for it.

A string that is no UTF-8 (UnicodeDecodeError), deep nesting (RecursionError) and a YAML scalar that is no valid date or number
(ValueError) are not errors of the decoders' own classes. A reader that does not expect them would end the agent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kube import yaml_errors
from kube.json_object import UNREADABLE

T = TypeVar("T")


class DamagedFileError(ValueError):
    """The content of a file cannot be decoded; the message does not name the file."""


def decode_json(path: Path, kind: type[T]) -> T:
    """Decode a JSON file. Raise OSError, DamagedFileError."""
    data = path.read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise DamagedFileError(str(error)) from error


def decode_yaml(text: str) -> Any:
    """Decode a YAML document. Raise DamagedFileError."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"not YAML: {yaml_errors.with_line(error, text)}") from error


def text_of(path: Path) -> str:
    """Read a file of UTF-8 text. Raise OSError, DamagedFileError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"not UTF-8: {error}") from error
