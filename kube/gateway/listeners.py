"""Evaluation of a Gateway's listeners: protocols, conflicts, certificates, and the routes that they allow.

A listener that cannot be served affects no other one, except that all listeners that conflict with each other are not served
(the API forbids to prefer one of them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from kube.gateway import allowed_routes, names
from kube.gateway.allowed_routes import MOST_TERMS, PROTOCOLS, TOO_MANY_TERMS
from kube.gateway.hostnames import intersection
from kube.gateway.objects import Gateway, Listener, Reference
from kube.gateway.verdict import ACCEPTED, NO_CONFLICTS, RESOLVED, Verdict, failed
from kube.gateway.view import View
from kube.selectors import LabelSelector

MOST_CERTIFICATES = 8
"""Certificates of one listener; the API allows 64, which nodes would read for each handshake's name."""


@dataclass(frozen=True, slots=True)
class ListenerState:
    """A listener with the results of its checks."""

    listener: Listener
    kinds: tuple[str, ...]
    accepted: Verdict
    conflicts: Verdict
    """`ok` if there are none: the condition Conflicted is then False."""
    resolved: Verdict
    certificates: tuple[tuple[str, str], ...]
    """(namespace, name) of the Secrets that can be served."""
    overlaps: bool
    """True if another TLS listener of the port has a hostname with names in common."""
    namespaces: LabelSelector | None
    """Labels of the namespaces whose routes are allowed; None: only the Gateway's own."""

    @property
    def tls(self) -> bool:
        return self.listener.protocol == "HTTPS"

    @property
    def programmed(self) -> bool:
        """True if the listener is served."""
        return self.accepted.ok and self.conflicts.ok and (bool(self.certificates) or not self.tls)

    def allows(self, kind: str, namespace: str, gateway: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether routes of a kind in a namespace with these labels may be attached, by the listener of a Gateway in
        namespace `gateway`.
        """
        if kind not in self.kinds:
            return False
        if self.namespaces is None:
            return namespace == gateway
        return labels is not None and self.namespaces.matches(labels)


def evaluate(gateway: Gateway, view: View) -> Generator[int, None, tuple[ListenerState, ...]]:
    """Find the state of each listener, in the order of the spec: the generator's value. Yield after each certificate
    and after each listener.
    """
    listeners, states = gateway.spec.listeners, []
    selected = allowed_routes.namespaces(gateway)
    for each, conflicts, namespaces in zip(listeners, _conflicts(listeners), selected, strict=True):
        certificates = yield from _certificates(gateway, each, view)
        states.append(_state(gateway, each, conflicts, certificates, namespaces))
        yield 1
    return tuple(states)


def _state(
    gateway: Gateway, listener: Listener, conflicts: Verdict, found: Certificates, namespaces: LabelSelector | None
) -> ListenerState:
    certificates, certificates_resolved = found
    kinds, kinds_resolved = allowed_routes.kinds(listener)
    return ListenerState(
        listener,
        kinds,
        _accepted(gateway, listener, namespaces),
        conflicts,
        kinds_resolved if kinds_resolved is not RESOLVED else certificates_resolved,
        certificates,
        _overlaps(listener, gateway.spec.listeners),
        namespaces,
    )


def _accepted(gateway: Gateway, listener: Listener, namespaces: LabelSelector | None) -> Verdict:
    if listener.protocol not in PROTOCOLS:
        return failed("UnsupportedProtocol", f"Protocol {listener.protocol} is not supported; use HTTP or HTTPS")
    if listener.protocol == "HTTPS":
        if listener.tls is not None and listener.tls.mode != "Terminate":
            return failed("UnsupportedValue", f"TLS mode {listener.tls.mode} is not supported; use Terminate")
        if _validates_clients(gateway, listener.port):
            return failed("UnsupportedValue", "Validation of client certificates is not supported")
    if namespaces is TOO_MANY_TERMS:
        message = f"Selectors of namespaces with more than {MOST_TERMS} terms in all listeners are not supported"
        return failed("UnsupportedValue", message)
    return ACCEPTED


def _validates_clients(gateway: Gateway, port: int) -> bool:
    """Return whether clients of a port need certificates. Such a port is not served: it would admit all clients."""
    if gateway.spec.tls is None:
        return False
    frontend = gateway.spec.tls.frontend
    own = [each.tls for each in frontend.per_port if each.port == port]
    return any(each.validation is not None for each in own or [frontend.default])


# -- certificates -----------------------------------------------------------------------------------------------------
Certificates = tuple[tuple[tuple[str, str], ...], Verdict]
"""The usable certificates of a listener, and the first problem of any of them."""


def _certificates(gateway: Gateway, listener: Listener, view: View) -> Generator[int, None, Certificates]:
    if listener.protocol != "HTTPS":
        return (), RESOLVED
    wanted = listener.tls.certificate_refs if listener.tls is not None else []
    if not wanted:
        return (), failed("InvalidCertificateRef", "An HTTPS listener needs a certificate in tls.certificateRefs")
    usable: list[tuple[str, str]] = []
    verdict = RESOLVED
    for each in wanted[:MOST_CERTIFICATES]:
        problem = _certificate_problem(gateway, each, view)
        if problem is None:
            usable.append((each.namespace or gateway.metadata.namespace or "", each.name))
        elif verdict.ok:
            verdict = problem
        yield 1
    if len(wanted) > MOST_CERTIFICATES and verdict.ok:
        verdict = failed("InvalidCertificateRef", f"More than {MOST_CERTIFICATES} certificates are not supported")
    return tuple(dict.fromkeys(usable)), verdict


def _certificate_problem(gateway: Gateway, reference: Reference, view: View) -> Verdict | None:
    own = gateway.metadata.namespace or ""
    namespace, name = reference.namespace or own, reference.name
    if reference.group or (reference.kind or "Secret") != "Secret":
        kind = f"{reference.kind or 'Secret'}.{reference.group}" if reference.group else reference.kind
        return failed("InvalidCertificateRef", f"A certificate is a Secret, not a {kind}")
    if not view.permitted("Gateway", own, "Secret", namespace, name):
        return failed(
            "RefNotPermitted", f"No ReferenceGrant permits the reference to Secret {name} in namespace {namespace}"
        )
    match view.certificate(namespace, name):
        case "":
            return None
        case "missing":
            return failed("InvalidCertificateRef", f"There is no Secret {namespace}/{name} of type kubernetes.io/tls")
        case _:
            return failed("InvalidCertificateRef", f"Secret {namespace}/{name} has no valid certificate with its key")


def copies(state: ListenerState) -> tuple[str, ...]:
    """Return the names of the copies of a listener's certificates."""
    return tuple(names.copy_of(namespace, name) for namespace, name in state.certificates)


# -- conflicts --------------------------------------------------------------------------------------------------------
def _conflicts(listeners: list[Listener]) -> list[Verdict]:
    """Compare supported listeners: those of one port need one protocol and different hostnames."""
    served = [each for each in listeners if each.protocol in PROTOCOLS]
    protocols: dict[int, set[str]] = {}
    for each in served:
        protocols.setdefault(each.port, set()).add(each.protocol)
    same = Counter((each.port, each.hostname) for each in served)
    found = []
    for each in listeners:
        if each.protocol not in PROTOCOLS:
            found.append(NO_CONFLICTS)
        elif len(protocols[each.port]) > 1:
            message = f"Other listeners of port {each.port} have another protocol"
            found.append(failed("ProtocolConflict", message))
        elif same[each.port, each.hostname] > 1:
            message = f"Other listeners of port {each.port} have the same hostname"
            found.append(failed("HostnameConflict", message))
        else:
            found.append(NO_CONFLICTS)
    return found


def _overlaps(listener: Listener, listeners: list[Listener]) -> bool:
    if listener.protocol != "HTTPS":
        return False
    return any(
        each is not listener
        and each.port == listener.port
        and each.protocol == "HTTPS"
        and intersection(listener.hostname, each.hostname) is not None
        for each in listeners
    )
