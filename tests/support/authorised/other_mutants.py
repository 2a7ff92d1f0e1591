"""More faults of that kind: a question that says too little, an answer that is not heeded, a change that is not shown."""

from __future__ import annotations

from tests.support.authorised.mutants import Mutant

_INFO = "control.interfaces.requestinfo:"
_WRITING, _DELETING = "control.server.writing:Writing.", "control.server.deleting:Deleting."
_REGISTRY = "control.registry."

OTHERS = (
    # -- what a path and a query mean
    Mutant(
        "a name is left out of the question", _INFO + "parse_path", "name = parts[1]", "name = ''", ("get", "delete")
    ),
    Mutant(
        "a subresource is left out of the question",
        _INFO + "parse_path",
        "subresource = parts[2]",
        'subresource = ""',
        ("part", "act", "patch"),
    ),
    Mutant(
        "a namespace's own subresource is one of its resources",
        _INFO + "parse_path",
        "parts[2] not in _NAMESPACE_SUBRESOURCES",
        "True",
        ("part", "get"),
    ),
    Mutant(
        "deletecollection is asked as delete",
        _INFO + "parse_path",
        'verb = "deletecollection"',
        'verb = "delete"',
        ("clear",),
    ),
    Mutant("a watch is asked as a list", _INFO + "with_query", '"watch" if watch else "list"', '"list"', ("list",)),
    Mutant(
        "a selector that excludes a name names it",
        _INFO + "_selected_name",
        '.exact("metadata.name")',
        ".terms[0][1]",
        ("list", "watch"),
    ),
    # -- asking
    Mutant(
        "the question says which resource and not which part",
        "control.server.authorizing:without_selectors",
        "info.subresource,",
        '"",',
        ("part", "act"),
    ),
    Mutant(
        "the question leaves the namespace out",
        "control.server.authorizing:without_selectors",
        "info.namespace,",
        '"",',
        ("get", "list"),
    ),
    Mutant(
        "a refusal is not heeded where the authorizer has no opinion",
        "control.server.pipeline:Pipeline._authorize",
        "if decision is not Decision.ALLOW:",
        "if decision is Decision.DENY:",
        ("get", "delete"),
    ),
    Mutant(
        "a second question is not heeded",
        "control.server.authorizing:require",
        "if decision is not Decision.ALLOW:",
        "if decision is Decision.DENY:",
        ("apply", "connect"),
    ),
    Mutant(
        "one who acts as another is asked about as themselves",
        "control.server.pipeline:Pipeline._impersonated",
        "return acting.user",
        "return user",
        ("get", "list", "create"),
    ),
    Mutant(
        "nobody is asked about the groups that one acts in",
        "control.auth.impersonation:_rest",
        "return [uid, groups, extras]",
        "return [uid, (), extras]",
        ("get", "list", "create", "delete", "patch"),
    ),
    # -- lists and watches
    Mutant(
        "a list shows all namespaces",
        "control.server.list_options:ListOptions.folder",
        'prefix = f"{prefix}{namespace}/"',
        "pass",
        ("list",),
    ),
    Mutant(
        "a list by name shows what begins with that name",
        "control.server.list_options:ListOptions.predicate",
        "if self.fields.empty:",
        "if True:",
        ("list", "watch"),
    ),
    Mutant(
        "a namespace in a field selector takes the path's place",
        "control.server.list_options:ListOptions.folder",
        'namespace or self.fields.exact("metadata.namespace")',
        'self.fields.exact("metadata.namespace") or namespace',
        ("list", "watch"),
    ),
    Mutant(
        "a change is told to all who watch the kind",
        "control.storage.resource_cache:ResourceCache._watched_with",
        "for place in places if place in watched",
        "for place in watched",
        ("list", "watch"),
    ),
    # -- writes
    Mutant(
        "a body's namespace takes the path's place",
        _WRITING + "create",
        "self._namespace(request, resource), obj)",
        'obj["metadata"].get("namespace") or self._namespace(request, resource), obj)',
        ("create",),
    ),
    Mutant(
        "a body's name takes the path's place",
        "control.server.replacing:read",
        "metadata.match_name(meta, name, namespace)",
        'request.info = __import__("msgspec").structs.replace(request.info, name=meta.get("name") or name)',
        ("replace",),
    ),
    Mutant(
        "a status is written as the whole object",
        _WRITING + "patch",
        "subresource=subresource,\n        create_missing",
        "create_missing",
        ("patch", "part"),
    ),
    Mutant(
        "a dry run deletes",
        _REGISTRY + "deletion:_delete_once",
        "if options.dry_run:",
        "if False:",
        ("delete",),
    ),
    Mutant(
        "a dry run changes",
        _REGISTRY + "compare_and_swap:_store",
        "if context.dry_run:",
        "if False:",
        ("patch", "part"),
    ),
    Mutant(
        "deletion of a collection takes those of all namespaces",
        _DELETING + "delete_collection",
        "self._namespace(request, resource), chosen",
        '"", chosen',
        ("clear",),
    ),
    # -- admission
    Mutant(
        "a status is not shown to admission",
        _REGISTRY + "updating:_validate",
        "await registry.admission.validate(attributes)",
        'await registry.admission.validate(attributes) if subresource != "status" else None',
        ("patch", "part"),
    ),
    Mutant(
        "an update is shown without the old object",
        _REGISTRY + "updating:_admit",
        "shown, shown_old = obj, old",
        "shown, shown_old = obj, obj",
        ("patch", "replace"),
    ),
    Mutant(
        "a deletion is not shown to admission",
        _REGISTRY + "deletion:_admit",
        "await deletion.registry.admission.validate(attributes)",
        "pass",
        ("delete",),
    ),
    Mutant(
        "a creation is shown and changed afterwards",
        _REGISTRY + "creation:_create_once",
        "written = await _store_new(",
        'obj = obj | {"metadata": {**meta, "labels": {"late": "yes"}}}; written = await _store_new(',
        ("create",),
    ),
    Mutant(
        "a dry run is shown as none",
        _REGISTRY + "context:Context.attributes",
        "dry_run=self.dry_run,",
        "dry_run=False,",
        ("delete",),
    ),
    Mutant(
        "a proxied request is not shown to admission",
        "control.server.subresources.backends:service",
        "await admit(server, request, resource)",
        "pass",
        ("connect",),
    ),
    # -- backends
    Mutant(
        "a client's credentials are passed on",
        "control.http.http1:request_head",
        "lowered in _DROPPED_REQUEST_HEADERS",
        'lowered == b"host"',
        ("extend", "connect"),
    ),
    Mutant(
        "a node's port leads to the agent of another node",
        "control.server.subresources.backends:node",
        'found = (await server.registry.get(resource, "", name)).obj',
        'found = (await server.registry.get(resource, "", "n2")).obj',
        ("connect",),
    ),
    # -- beyond the first question
    Mutant(
        "who approves a request for a certificate is not asked about its signer",
        "control.admission.certificates:CertificateApproval.validate",
        "if not await _may(",
        "if False and not await _may(",
        ("part",),
    ),
    Mutant(
        "who changes owners need not be able to delete",
        "control.admission.owner_references:OwnerReferencesPermissionEnforcement.validate",
        "a.old is not None and",
        "False and",
        ("patch", "replace"),
    ),
)
