"""Reads the configuration files of apiserver.config.k8s.io: errors contain the field's path."""

from __future__ import annotations

from typing import Any

import yaml

from kube import duration
from kube.json_object import Object

GROUP = "apiserver.config.k8s.io"


class ConfigurationError(Exception):
    """The file cannot be used; the message names the field."""


def read(text: str | bytes, kind: str) -> Object:
    """Return a file's document where it is of a kind of the group."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"it is no YAML: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise ConfigurationError(f"kind: must be {kind}")
    if not str(document.get("apiVersion", "")).startswith(f"{GROUP}/v1"):
        raise ConfigurationError(f"apiVersion: must be {GROUP}/v1")
    return document


def object_at(holder: Object, name: str, path: str) -> Object:
    """Return an object's field that is an object; an empty one where it is missing."""
    found = holder.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}.{name}: must be an object".lstrip("."))
    return found


def list_at(holder: Object, name: str, path: str) -> list[Any]:
    """Return an object's field that is a list; an empty one where it is missing."""
    found = holder.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ConfigurationError(f"{path}.{name}: must be a list".lstrip("."))
    return found


def known(holder: Object, path: str, names: tuple[str, ...]) -> None:
    """Refuse fields of other names."""
    if not isinstance(holder, dict):
        raise ConfigurationError(f"{path}: must be an object".lstrip("."))
    for name in holder:
        if name not in names:
            raise ConfigurationError(f"{path}.{name}: unknown field".lstrip("."))


def seconds_at(holder: Object, name: str, path: str, missing: float) -> float:
    """Return a duration ("1m30s") in seconds."""
    found = holder.get(name)
    if found is None:
        return missing
    try:
        return duration.parse(str(found))
    except ValueError:
        message = f'{path}.{name}: Invalid value: "{found}": must be a duration as 3s or 5m'
        raise ConfigurationError(message.lstrip(".")) from None
