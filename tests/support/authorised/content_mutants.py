"""Faults of single resources and of what an answer contains: each shows a little of an object, or of one resource only."""

from __future__ import annotations

from tests.support.authorised.mutants import Mutant

_GET = "control.server.reading:Reading.get"
_METRICS = "control.server.resource_metrics:_outlines"
_JOURNAL = "control.server.journal_page:JournalPage.__call__"
_AUTHORIZE = "control.server.pipeline:Pipeline._authorize"
_NOT_ALLOWED = "if decision is not Decision.ALLOW:"
_KEPT = 'self.registry._caches["/registry/secrets/"]._entries["/registry/secrets/left/a"]'

CONTENTS = (
    Mutant(
        "an answer with another object contains a Secret's data",
        _GET,
        "return Response(200, entry.data)",
        f'return Response(200, entry.data + __import__("json").dumps({_KEPT}.obj["data"]).encode())',
        ("get",),
    ),
    Mutant(
        "an answer with another object contains a pod's status",
        _GET,
        "return Response(200, entry.data)",
        "return Response(200, entry.data + "
        + _KEPT.replace("secrets", "pods").join(('__import__("json").dumps(', '.obj["status"]).encode())')),
        ("get",),
    ),
    Mutant(
        "an answer tells how large a Secret is",
        _GET,
        "return Response(200, entry.data)",
        'return Response(200, entry.data + b"%d" % len((await self.registry.get('
        'self.registry.built_in("", "v1", "secrets"), "left", "a")).data))',
        ("get",),
    ),
    Mutant("the journal needs permission for its path only", _JOURNAL, _NOT_ALLOWED, "if False:", ("journal",)),
    Mutant(
        "the journal asks about the object of that name in any namespace",
        _JOURNAL,
        'namespace=place if resource.namespaced else ""',
        'namespace=""',
        ("journal",),
    ),
    Mutant(
        "the journal asks about another kind than it shows",
        _JOURNAL,
        "resource=plural,",
        'resource="pods",',
        ("journal",),
    ),
    Mutant(
        "an agent's journal is read about another pod than the one that was asked about",
        "control.server.node_journal:NodeJournals._read",
        "urlencode({'namespace': namespace, 'name': name})",
        "urlencode({'namespace': namespace, 'name': 'b.c'})",
        ("journal",),
    ),
    Mutant(
        "the states of components are for all",
        _AUTHORIZE,
        _NOT_ALLOWED,
        'if decision is not Decision.ALLOW and request.info.resource != "componentstatuses":',
        ("components",),
    ),
    Mutant(
        "the use of pods is shown of all namespaces",
        _METRICS,
        'f"{core.storage_prefix}{namespace}/" if namespace and core.namespaced else ""',
        '""',
        ("measure",),
    ),
    Mutant(
        "the use of a pod is shown of another namespace's",
        _METRICS,
        "cached.get(core.key(namespace, name))",
        'cached.get(core.key(namespace and "left", name))',
        ("measure",),
    ),
    Mutant(
        "the scale of a replica set is asked as the replica set",
        "control.server.authorizing:without_selectors",
        "info.subresource,",
        '"" if info.resource == "replicasets" else info.subresource,',
        ("part",),
    ),
    Mutant(
        "a daemon set's status is written as the whole daemon set",
        "control.server.writing:Writing.patch",
        "subresource=subresource,\n        create_missing",
        'subresource="" if resource.plural == "daemonsets" else subresource,\n        create_missing',
        ("each",),
        "/daemonsets/",
    ),
    Mutant(
        "volume attachments are for all",
        _AUTHORIZE,
        _NOT_ALLOWED,
        'if decision is not Decision.ALLOW and request.info.resource != "volumeattachments":',
        ("each",),
        "/volumeattachments",
    ),
)
