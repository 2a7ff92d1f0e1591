"""Reads the configuration file (--config) and the directory of drop-ins (--config-dir) that override single settings of it.

The installation writes the file; the node's administrator puts settings into drop-ins, which no installation overwrites. The
rules are upstream's: every *.conf below the directory, in the order of their paths, each of the file's own kind; mappings are
merged key by key, lists replaced as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.files.decoding import DamagedFileError, text_of
from agent.kubelet_configuration import ConfigError, KubeletConfiguration, decode, document


def load(path: Path | None, folder: Path | None = None) -> tuple[KubeletConfiguration, list[str]]:
    """Return the settings of a file and a folder, and the names of accepted fields without effect. Raise ConfigError."""
    paths = [path] if path is not None else []
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"failed to load kubelet config drop-in directory {folder}: no such directory")
        paths += sorted(one for one in folder.rglob("*.conf") if one.is_file())
    whole: dict[str, Any] = {}
    idle: set[str] = set()
    for one in paths:
        try:
            text = text_of(one)
        except OSError as error:
            raise ConfigError(f"failed to load kubelet config file {one}: {error.strerror}") from error
        except DamagedFileError as error:
            raise ConfigError(f"failed to load kubelet config file {one}: {error}") from error
        read = document(text, str(one))
        idle.update(decode(read, str(one))[1])  # one by one, so that an error names the file that it is in
        whole = laid_over(whole, read)
    return decode(whole, "KubeletConfiguration")[0], sorted(idle)


def laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two documents: what is above wins, key by key inside mappings, as a whole for lists."""
    merged = dict(below)
    for name, value in above.items():
        before = merged.get(name)
        merged[name] = laid_over(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
