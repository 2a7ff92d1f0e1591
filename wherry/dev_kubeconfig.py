"""The kubeconfig that `wherry dev` writes, and removes at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from wherry.errors import WherryError


@contextlib.contextmanager
def written(text: str, path: Path) -> Iterator[Path]:
    """Write a kubeconfig to a file that is not there yet, and remove it afterwards. Raise WherryError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WherryError(f"{path}: {os.strerror(error.errno or 0)}") from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path.resolve()
    finally:
        path.unlink(missing_ok=True)
