"""Faults that were mended, each with the test module that fails if it comes back.

`tests/contract/test_standing_mutants.py` runs each module with its fault, `mutated_import.py` puts the fault in place. Those of
what was authorised are in tests/support/authorised.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from simulation.changed_imports import Mutant

_UNIT, _CONTRACT, _HOST = "tests/unit/", "tests/contract/", "tests/host/"
_LINKS = _UNIT + "control/http/test_rewrite_links.py"
_HEADS = _CONTRACT + "serving/test_head_limits.py"
_YAML = _UNIT + "control/decoding/test_yaml_body.py"


class Standing(Mutant, frozen=True):
    """A fault, and the tests that fail with it: a module of tests, of it those that match `only`.

    `long` if these take more than a few seconds, or need root: they run with the tests marked so.
    """

    tests: str
    only: str = ""
    long: bool = False

    def source(self) -> str:
        """Return the text of the module as it is."""
        found = importlib.util.find_spec(self.module)
        assert found is not None and found.origin is not None
        return Path(found.origin).read_text()


STANDING = (
    # -- heads, connections and caches of what clients send
    Standing(
        "a head has no limit",
        "kube.serving.protocol",
        "            if self._fed > self.limits.head_bytes:\n",
        "            if False:\n",
        _HEADS,
        "many_parts",
        long=True,
    ),
    Standing(
        "half a head keeps its connection for ever",
        "kube.serving.protocol",
        "self._progress = self.loop.call_later(self.limits.head_timeout, self._head_slow)",
        "pass",
        _HEADS,
        "does_not_come_in_time",
        long=True,
    ),
    Standing(
        "one address may have all connections",
        "kube.serving.table",
        "len(group) >= self._limits.unauthenticated_per_peer",
        "False",
        _UNIT + "kube/test_connection_table.py",
    ),
    Standing(
        "a cache keeps keys of any length",
        "kube.bounded_cache",
        "len(argument) > longest",
        "False",
        _UNIT + "kube/test_bounded_cache.py",
    ),
    # -- YAML
    Standing(
        "digits between colons are a number to the base of 60",
        "control.decoding.yaml_scalars",
        "return _number(text) if text[0] in _NUMBERS else text",
        'return sum(int(d) * 60**i for i, d in enumerate(text.split(":")[::-1])) if text[0].isdigit() and ":" in text'
        " else _number(text) if text[0] in _NUMBERS else text",
        _YAML,
        "scalars",
    ),
    Standing(
        "the event loop reads large YAML",
        "control.decoding.yaml_body",
        'if weight(body, "yaml") <= INLINE:',
        "if True:",
        _YAML,
        "another_thread",
    ),
    Standing(
        "a document has any number of values",
        "control.decoding.yaml_document",
        "if values > MOST_VALUES:",
        "if False:",
        _UNIT + "control/event_loop/test_weight.py",
    ),
    # -- pods of the API that claim to be static
    Standing(
        "a pod is static by its annotation",
        "agent.pods.state",
        "self.static = static\n",
        'self.static = static or "kubernetes.io/config.source" in (pod.metadata.annotations or {})\n',
        _CONTRACT + "agent/test_pod_source.py",
        "deletion_ends_it",
        long=True,
    ),
    Standing(
        "a pod is admitted as a static one by its annotation",
        "agent.pods.workers",
        "self._deps.node, self._deps.config, static=own)",
        "self._deps.node, self._deps.config,"
        ' static=own | ({uid} if "kubernetes.io/config.source" in (pod.metadata.annotations or {}) else set()))',
        _CONTRACT + "agent/test_pod_source.py",
        "preempts_nobody",
        long=True,
    ),
    # -- pages behind a proxy
    Standing(
        "a comment is read from its beginning at each piece",
        "control.http.html_page",
        "return max(at, len(text) - length + 1)",
        "return at",
        _UNIT + "cost/test_linear_cost.py",
        "byte and open and comments",
        long=True,
    ),
    Standing(
        "a compressed page unpacks to any size",
        "control.http.rewrite_links",
        "if total > MOST_UNPACKED:",
        "if False:",
        _LINKS,
        "too_much",
    ),
    Standing(
        "a compressed page is unpacked at once",
        "control.http.rewrite_links",
        "unpack.decompress(chunk, PIECE)",
        "unpack.decompress(chunk)",
        _LINKS,
        "unpacked_in_pieces",
    ),
    Standing(
        "a tag of any length is rewritten",
        "control.http.html_page",
        "if names is None or len(tag) > LONGEST_TAG:",
        "if names is None:",
        _LINKS,
        "too_long",
    ),
    # -- addresses of pods, ports of nodes
    Standing(
        "a pod sends frames with any MAC",
        "netproxy.podnet.source_rules",
        '"iifname . ether saddr != @macs drop",',
        "",
        _HOST + "netproxy/test_pod_sources.py",
        "only_what_is_a_pods_own",
        long=True,
    ),
    Standing(
        "a Service gets the ports of a node's daemons",
        "control.controllers.service_lb.ports",
        "if port in self._reserved:",
        "if False:",
        _CONTRACT + "test_service_lb.py",
        "ports_of_the_nodes",
        long=True,
    ),
    Standing(
        "a Service gets any port",
        "control.controllers.service_lb.ports",
        "if port[1] not in self._allowed:",
        "if False:",
        _CONTRACT + "test_service_lb.py",
        "ports_of_the_nodes",
        long=True,
    ),
    Standing(
        "a program's port goes to a load balancer",
        "netproxy.port_checks",
        "await self._find(portion)",
        "frozenset()",
        _UNIT + "netproxy/test_listeners.py",
    ),
    # -- permissions
    Standing(
        "controllers are in system:masters",
        "control.controllers.identities",
        "groups=groups_of(NAMESPACE)",
        'groups=(*groups_of(NAMESPACE), "system:masters")',
        _CONTRACT + "test_identities.py",
        "is_refused_what",
    ),
    Standing(
        "a role that aggregates others is written by who holds only its rules",
        "control.admission.rbac_escalation",
        "if aggregates and await self._missing",
        "if False and await self._missing",
        _CONTRACT + "test_rbac_escalation.py",
        "gives_anybody_more",
        long=True,
    ),
    Standing(
        "the agent takes a GET for exec as a get",
        "agent.server.authorization",
        'return "create", ("proxy",)',
        'return _VERBS.get(method, ""), ("proxy",)',
        _UNIT + "agent/server/test_auth_filter.py",
        "commands_are_always_create",
    ),
)
