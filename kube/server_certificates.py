"""Refusal of API servers whose certificate is a node's.

The CA that clients verify API servers with also signs the serving certificates of agents. An address that was an API server's
can become a node's: a member of the control plane was replaced, or the endpoint slice of the servers was altered. The node
would be a valid API server by TLS's own rules, and its root user would receive the clients' tokens and choose their pods. No
API server has a node's subject, so connections to a peer with one are closed before anything is sent.
"""

from __future__ import annotations

import logging
import ssl
import time

from kube.node_names import NODE_PREFIX, NODES_GROUP

log = logging.getLogger(__name__)

LOG_SECONDS = 600.0
"""Interval of the warnings about one server; clients connect every few seconds."""


class NodesCertificate(ssl.SSLCertVerificationError):
    """The verified certificate of a server is a node's."""

    def __init__(self, subject: str) -> None:
        self.verify_message = f"its certificate is a node's ({subject}), which no API server has"
        super().__init__(ssl.SSL_ERROR_SSL, self.verify_message)


class ServerCertificates:
    """Checks the certificates of one server after handshakes."""

    def __init__(self, server: str) -> None:
        self._server, self._logged = server, float("-inf")

    def check(self, tls: ssl.SSLObject) -> None:
        """Raise NodesCertificate if the peer's certificate is a node's; one that TLS does not verify is not checked."""
        shown = tls.getpeercert() or {}
        subject = [(str(name), str(value)) for part in shown.get("subject", ()) for name, value in part]  # type: ignore[str-unpack]
        if not any(_is_nodes(name, value) for name, value in subject):
            return
        error = NodesCertificate(", ".join(f"{name} {value}" for name, value in subject))
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.warning("the server at %s is refused: %s", self._server, error.verify_message)
        raise error


def _is_nodes(name: str, value: str) -> bool:
    return (name == "organizationName" and value == NODES_GROUP) or (
        name == "commonName" and value.startswith(NODE_PREFIX)
    )
