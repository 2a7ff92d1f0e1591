"""A limit of what runs at a time, whose excess is refused at once: the page retries, and other requests need not wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kube.errors import StatusError


class Places:
    """So many places of a kind of work."""

    def __init__(self, number: int, name: str) -> None:
        self._free, self._name = number, name

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Occupy a place while the block runs. Raise StatusError 429 if there is none."""
        if not self._free:
            raise StatusError(429, "TooManyRequests", f"too many {self._name} of this page at a time: close other tabs")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
