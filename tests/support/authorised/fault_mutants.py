"""Known faults, reintroduced: each got past authorization or admission until it was found."""

from __future__ import annotations

from tests.support.authorised.mutants import Mutant

_RESOURCES = "control.server.resources:ResourceServer."
_PODS = "control.server.subresources.pods:"
_REGISTRY = "control.registry."

FAULTS = (
    Mutant(
        "an old watch path shows the object that a field selector names",
        "control.server.reading:Reading.list_options",
        'elif options.fields.exact("metadata.name") != name:',
        "elif False:",
        ("watch",),
    ),
    Mutant(
        "an apply or an update makes what is not there without create",
        _REGISTRY + "updating:update",
        "await context.check_create()",
        "pass",
        ("apply", "replace"),
    ),
    Mutant(
        "a role whose rules stay the same is not looked at",
        "control.admission.rbac_escalation:_same",
        "_without_gc_fields(obj) == _without_gc_fields(old)",
        'obj.get("rules") == old.get("rules") and obj.get("roleRef") == old.get("roleRef")',
        ("patch",),
    ),
    Mutant(
        "a role that aggregates others needs permission for its own rules only",
        "control.admission.rbac_escalation:RBACEscalation._role",
        "if aggregates and await self._missing(",
        "if False and await self._missing(",
        ("patch", "replace"),
    ),
    Mutant(
        "an upgrade behind nodes/proxy is a get",
        "control.server.subresources.backends:node",
        'await server.require(request, "create")',
        "pass",
        ("connect",),
    ),
    Mutant(
        "exec by a node's own path is a get",
        "control.server.subresources.kubelet:proxy",
        "in _COMMANDS",
        "in ()",
        ("connect",),
    ),
    Mutant(
        "a Service's proxy goes where an ExternalName leads",
        "control.dialing.service_backend:backend",
        "raise errors.unavailable('unsupported service type \"ExternalName\"')",
        'return str(service["spec"]["externalName"]), int(port or 443)',
        ("connect",),
    ),
    Mutant(
        "a Service's proxy goes to another namespace's pods",
        "control.dialing.service_backend:backend",
        "if not only_pods or",
        "if True or",
        ("connect",),
    ),
    Mutant(
        "an eviction is not shown to admission",
        _PODS + "evict",
        "await created.validate(server, attributes)",
        "pass",
        ("act",),
    ),
    Mutant(
        "a binding is not shown to admission",
        _PODS + "assign",
        "await created.validate(server, attributes)",
        "pass",
        ("act",),
    ),
    Mutant(
        "ephemeral containers name any Secret",
        "control.admission.service_account:_adds_ephemeral_containers",
        'asked == ("pods", "UPDATE", "ephemeralcontainers")',
        "False",
        ("part",),
    ),
    Mutant(
        "a node names any claim in its pod's status",
        "control.admission.node_restriction:_pod_status",
        '("extendedResourceClaimStatus", "extended resource claim status"),',
        "",
        ("node",),
    ),
    Mutant(
        "a node takes the mark of a mirror off a pod",
        "control.registry.core.pod.status:validate_status",
        "errors = validate_annotation_changes(annotations, annotated)",
        "errors = []",
        ("node",),
    ),
    Mutant(
        "a front proxy's headers reach extension servers under their other names",
        "control.auth.request_header:Clearing.clears",
        "return lowered in self._names or",
        "return False and",
        ("extend",),
    ),
    Mutant(
        "a Binding binds the pod that its body names, whatever the path says",
        _RESOURCES + "__call__",
        "if named and resource.verbs == CREATE_ONLY:",
        "if False:",
        ("act",),
    ),
    Mutant(
        "who names a policy's parameters need not be able to read them",
        "control.admission.policy_parameters:PolicyParameters.validate",
        'if kind and kind != old.get("paramKind"):',
        "if False:",
        ("create", "apply", "replace"),
    ),
    Mutant(
        "who names a binding's parameters need not be able to read them",
        "control.admission.policy_parameters:PolicyParameters.validate",
        "if ref and (",
        "if False and (",
        ("create", "apply", "replace"),
    ),
    Mutant(
        "who writes a claim's status may allocate devices",
        "control.admission.claim_status:ClaimStatus._binding",
        "if all(",
        "if True or all(",
        ("part", "patch"),
    ),
    Mutant(
        "objects of a custom resource called events vanish",
        _REGISTRY + "creation:store_new",
        "strategy.ttl",
        '(3600 if resource.plural == "events" else 0)',
        ("create", "replace"),
    ),
)
