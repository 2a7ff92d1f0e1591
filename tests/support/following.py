"""Output of a running command as it comes: a watch of kubectl's, which runs until it is stopped."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from tests.support.cluster import Cluster, eventually

T = TypeVar("T")


class Following:
    """A running kubectl; `with Following(cluster, "get", "pods", "-w") as watch:` ends it with the block."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self._process: subprocess.Popen[str] = cluster.host.popen(*cluster.kubectl_argv(*arguments))
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, name=" ".join(arguments))

    @property
    def text(self) -> str:
        """All that was printed so far."""
        return "".join(self._lines)

    def until(self, look: Callable[[str], T | None], what: str, seconds: float = 60) -> T:
        """Wait until there is something to see in what was printed, and return it."""
        return eventually(lambda: look(self.text), what, seconds)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def __enter__(self) -> Following:
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
