"""Limits the number of sessions (exec, attach, port-forward) and of log streams for each namespace and for the node.

A session holds two connections with their buffers, 1 to 1.6 MB, most of it in TLS, and at most a fragment of a WebSocket
message (frame_splitter.py). So the number of sessions limits their total memory. A log stream takes about 1 MB if its client
does not read.

The last slots of the node, the reserve, are only for namespaces that have few sessions: four namespaces that hold all the
sessions that they may have leave the pods of others, such as kube-system's, to administrators.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

OF_NAMESPACE, OF_NODE = 128, 512
"""Sessions with the pods of one namespace on this node, and with all of its pods."""
RESERVE, FEW = 64, 8
"""Sessions of the node that only namespaces with fewer sessions than FEW may begin."""
LOGS_OF_NAMESPACE, LOGS_OF_NODE = 512, 1536
"""The same for streams of logs: a client may read those of all containers of a namespace."""
LOGS_RESERVE, LOGS_FEW = 256, 16


class TooManySessions(Exception):
    """No further session can begin; the text is for the client."""


class SessionSlots:
    """The sessions that are open, by namespace."""

    def __init__(
        self,
        of_namespace: int = OF_NAMESPACE,
        of_node: int = OF_NODE,
        reserve: int = RESERVE,
        few: int = FEW,
        what: str = "exec, attach and port-forward sessions with",
    ) -> None:
        self._what = what
        self._of_namespace, self._of_node = of_namespace, of_node
        self._reserve, self._few = reserve, few
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def slot(self, namespace: str) -> Iterator[None]:
        """Hold a session's slot. Raise TooManySessions."""
        if refusal := self._refusal(namespace):
            raise TooManySessions(f"too many {self._what} {refusal}")
        self._open[namespace] += 1
        try:
            yield
        finally:
            self._open[namespace] -= 1
            if not self._open[namespace]:
                del self._open[namespace]

    @classmethod
    def of_logs(cls) -> SessionSlots:
        """Return the slots of log streams."""
        return cls(LOGS_OF_NAMESPACE, LOGS_OF_NODE, LOGS_RESERVE, LOGS_FEW, "log streams of")

    def _refusal(self, namespace: str) -> str:
        """Return why a namespace may not begin a session now, "" if it may."""
        open_here, open_all = self._open[namespace], self._open.total()
        if open_here >= self._of_namespace:
            return f"pods of namespace {namespace} on this node: {self._of_namespace} are allowed"
        if open_all >= self._of_node:
            return f"pods on this node: {self._of_node} are allowed"
        if open_all >= self._of_node - self._reserve and open_here >= self._few:
            return (
                f"pods on this node: the last {self._reserve} of {self._of_node} are for namespaces with fewer than "
                f"{self._few}"
            )
        return ""
