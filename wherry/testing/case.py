"""unittest: a test case whose tests share a cluster, which returns to its first state after each."""

from __future__ import annotations

import unittest
from typing import ClassVar

from wherry.testing.cluster import Cluster, Snapshot


class KubernetesTestCase(unittest.TestCase):
    """Gives tests `self.cluster`. `NODES` is the number of its simulated nodes."""

    NODES: ClassVar[int] = 1
    cluster: ClassVar[Cluster]
    _snapshot: ClassVar[Snapshot]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster(cls.NODES))
        cls._snapshot = cls.cluster.snapshot()

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self._reset)

    def _reset(self) -> None:
        """Return to the first state. Raise ClusterError if the test has passed, but has an unused script."""
        outcome = getattr(self, "_outcome", None)
        try:
            if outcome is None or outcome.success:
                self.cluster.pods.check_scripts()
        finally:
            self._snapshot.restore()
