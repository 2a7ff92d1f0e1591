"""The administrator's kubeconfig as a file: each command names the same fix if it is missing, a folder or for root only."""

from __future__ import annotations

from pathlib import Path

from wherry.errors import WherryError

FIX = "`wherry up` or `wherry certs renew` writes it again"


def read(path: Path) -> bytes:
    """Return the content. Raises WherryError if the file cannot be read, FileNotFoundError."""
    require_no_folder(path)
    try:
        return path.read_bytes()
    except PermissionError as error:
        raise WherryError(f"{path} is only for root: run it with sudo") from error


def require_no_folder(path: Path) -> None:
    """Raise WherryError if a folder has the name of the file."""
    if path.is_dir():
        raise WherryError(f"{path} is a folder: remove it, then {FIX}")
