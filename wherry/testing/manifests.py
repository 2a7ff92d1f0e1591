"""Objects as tests write them: a file, YAML text, a dict, or a list of these; and references such as `deployment/web`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from kube import bounded_files, yaml_errors
from kube.json_object import Object
from wherry import os_errors
from wherry.testing.errors import ClusterError

MOST_BYTES = 64 << 20
"""Largest file that is read; a device may have no end."""


class _Loader(yaml.SafeLoader):
    """Refuses keys that a mapping has twice, as servers do: the last one would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml_errors.DuplicateKey(None, None, f"the key {twice} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


Source: TypeAlias = "str | Path | Mapping[str, Any] | Iterable[Source]"


Located: TypeAlias = "tuple[str, Object]"
"""The place of an object, such as `web.yaml, document 2`, empty if it is none of a text; and the object."""


def objects(source: Source) -> list[Object]:
    """Return the objects of a source. Raise ClusterError.

    A source is the path of a file or folder, YAML text, an object, or several of these.
    """
    return [obj for _, obj in located(source)]


def located(source: Source, where: str = "") -> list[Located]:
    """Return the objects of a source, each with its place. Raise ClusterError."""
    if isinstance(source, Mapping):
        if str(source.get("kind", "")).endswith("List") and isinstance(source.get("items"), list):
            return [each for item in source["items"] for each in located(item, where)]
        return [(where, _checked(dict(source), where))]
    if isinstance(source, Path):
        return _files(source)
    if isinstance(source, str) and not where:
        return _documents(source, "the text") if "\n" in source or ":" in source else _files(Path(source))
    if isinstance(source, Iterable) and not where:
        return [each for item in source for each in located(item)]
    raise ClusterError(f"{where}: {_shortened(source)} is not an object with apiVersion and kind")


def _files(path: Path) -> list[Located]:
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json"))
        if not files:
            raise ClusterError(f"{path}: the folder has no .yaml, .yml or .json file")
        return [each for file in files for each in _files(file)]
    try:
        text = bounded_files.read_text(path, MOST_BYTES)
    except OSError as error:
        raise ClusterError(f"{path}: {os_errors.reason(error)}") from error
    except UnicodeDecodeError as error:
        raise ClusterError(f"{path}: it is not text in UTF-8: give a file of manifests") from error
    return _documents(text, str(path))


def _documents(text: str, where: str) -> list[Located]:
    try:
        found = list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ClusterError(f"{where}: not YAML: {yaml_errors.with_line(error, text)}") from error
    result = list[Located]()
    for number, document in enumerate(found, 1):
        if document is not None:
            place = f"{where}, document {number}" if len(found) > 1 else where
            if not isinstance(document, Mapping):
                raise ClusterError(f"{place}: {_shortened(document)} is not an object with apiVersion and kind")
            result += located(document, place)
    if not result:
        raise ClusterError(f"{where}: no objects")
    return result


def _checked(obj: Object, where: str) -> Object:
    metadata, start = obj.get("metadata"), f"{where}: " if where else ""
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise ClusterError(f"{start}an object without {field}: {_shortened(obj)}")
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        raise ClusterError(f"{start}{obj['kind']}: an object without metadata.name: {_shortened(obj)}")
    return obj


def _shortened(obj: Any) -> str:
    text = repr(obj)
    return text if len(text) <= 100 else text[:97] + "..."
