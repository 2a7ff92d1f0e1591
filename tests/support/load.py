"""A steady stream of requests beside a test, for faults and updates that no client may notice."""

from __future__ import annotations

import threading
import time

from tests.support.cluster import Cluster


class Load:
    """Requests at one address, one after the other. All answers are kept; for none, the time and curl's error."""

    def __init__(self, cluster: Cluster, address: str, path: str = "/", pause: float = 0.0) -> None:
        """`pause`: seconds between two requests."""
        self.cluster, self.address, self.path, self.pause = cluster, address, path, pause
        self.answers: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(self.pause):
            began = time.time()
            done = self.cluster.curl(self.address, self.path)
            error = f"none from {began:.3f} to {time.time():.3f}: {done.stderr.strip()}"
            self.answers.append(done.stdout.strip() if done.returncode == 0 else error)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
