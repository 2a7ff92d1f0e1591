"""AdmissionConfiguration (--admission-control-config-file): the configuration of each plugin, in the file or in one
that it names.

Read once at start, as upstream's; what cannot be meant stops the server with the plugin's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from control.auth.fields import ConfigurationError, known, list_at, read
from kube.json_object import Object

Configurations = Mapping[str, Object]
"""Plugin -> its own document."""


def load(path: Path | None) -> dict[str, Object]:
    """Return each plugin's configuration from a file, if there is one; raises ConfigurationError, OSError."""
    if path is None:
        return {}
    try:
        document = read(path.read_bytes(), "AdmissionConfiguration")
        known(document, "", ("apiVersion", "kind", "plugins"))
        found: dict[str, Object] = {}
        for index, entry in enumerate(list_at(document, "plugins", "")):
            where = f"plugins[{index}]"
            known(entry, where, ("name", "path", "configuration"))
            name = str(entry.get("name") or "")
            if not name:
                raise ConfigurationError(f"{where}.name: Required value")
            if name in found:
                raise ConfigurationError(f'{where}.name: Duplicate value: "{name}"')
            found[name] = _document(entry, where, path.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return found


def _document(entry: Object, where: str, folder: Path) -> Object:
    inline, path = entry.get("configuration"), entry.get("path")
    if inline is not None and path:
        raise ConfigurationError(f"{where}: path and configuration exclude one another")
    if path:
        try:
            inline = yaml.safe_load((folder / str(path)).read_bytes())
        except (OSError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{where}.path: {error}") from error
    if inline is None:
        return {}
    if not isinstance(inline, dict):
        raise ConfigurationError(f"{where}.configuration: must be an object")
    return inline


def of_kind(document: Object, group: str, kind: str, versions: tuple[str, ...]) -> Object:
    """Return a plugin's document where it is of the kind that the plugin knows; raises ConfigurationError."""
    if document.get("kind") != kind or document.get("apiVersion") not in [f"{group}/{each}" for each in versions]:
        raise ConfigurationError(f"must be a {kind} of {group}/{versions[0]}")
    return document
