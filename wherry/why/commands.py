"""Commands that a person can paste. Names are quoted: those of some kinds may contain what a shell would run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from wherry.why.model import Reference

Spec = Mapping[str, Any]


def kubectl(verb: str, about: Reference, *more: str) -> str:
    """Return a command of kubectl about an object; `more` are further arguments, unquoted."""
    return shlex.join(["kubectl", *verb.split(), about.target, *namespaced(about.namespace), *more])


def namespaced(namespace: str) -> list[str]:
    """Return kubectl's option for a namespace; none for what has no namespace."""
    return ["-n", namespace] if namespace else []


def listing(plural: str, namespace: str = "") -> str:
    """Return the command that lists objects."""
    return shlex.join(["kubectl", "get", plural, *namespaced(namespace)])


def edit(about: Reference) -> str:
    """Return the command that opens an object in an editor, or what comes the nearest to it where its fields cannot change."""
    if about.kind == "Job":  # to create it again needs its manifest: the selector in the object is the server's
        return kubectl("delete", about)
    return recreate(about) if about.kind == "Pod" else kubectl("edit", about)


def recreate(about: Reference) -> str:
    """Return the command that opens an object in an editor and replaces it: most fields of a pod cannot change."""
    file = shlex.quote(f"{about.name}.yaml")
    return (
        f"{kubectl('get', about, '-o', 'yaml')} > {file} && ${{EDITOR:-vi}} {file} && kubectl replace --force -f {file}"
    )


def changes(about: Reference) -> bool:
    """Return whether the pod template of an object can change: a pod and a Job can only be replaced."""
    return about.kind not in ("Pod", "Job")


def words(*parts: str) -> str:
    """Return a command of words."""
    return shlex.join(parts)


def approve(request: str) -> str:
    """Return the command that approves a certificate request, whose name may be any text without a slash."""
    return shlex.join(["kubectl", "certificate", "approve", *(["--"] if request.startswith("-") else []), request])


def on_machine(address: str, *words: str) -> str:
    """Return a command that runs on a node as root. The address is an IP address, or "ADDRESS" to be filled in."""
    return shlex.join(["ssh", *(["--"] if address.startswith("-") else []), address, "sudo", *words])


def patch(about: Reference, body: Spec, *, merge: bool = False) -> str:
    """Return the command that patches an object, by default strategically."""
    text = json.dumps(body, separators=(",", ":"))
    return kubectl("patch", about, *(["--type=merge"] if merge else []), "-p", text)


def patch_container(change: Reference, name: str, fields: Spec) -> str:
    """Return the command that changes fields of one container in the template of a workload."""
    if not changes(change):
        return edit(change)
    spec: Spec = {"containers": [{"name": name, **fields}]}
    return patch(change, in_template(change, spec))


def in_template(change: Reference, spec: Spec) -> Spec:
    """Return a patch with a pod's spec where a kind of workload has it."""
    template: Spec = {"spec": {"template": {"spec": spec}}}
    return {"spec": {"jobTemplate": template}} if change.kind == "CronJob" else template


def set_resources(change: Reference, container: str, *, requests: str = "", limits: str = "") -> str:
    """Return the command that sets a container's requests and limits, each RESOURCE=AMOUNT."""
    if not changes(change):
        return edit(change)
    more = [*([f"--limits={limits}"] if limits else []), *([f"--requests={requests}"] if requests else [])]
    return kubectl("set resources", change, "-c", container, *more)


def named(name: str) -> str:
    """Return a name as a word of a command. One that no object can have, and which would be an option, is to be filled in."""
    return "NAME" if name.startswith("-") else name


def create_missing(kind: str, name: str, namespace: str) -> str:
    """Return the command that creates a ConfigMap or Secret, with a value to fill in."""
    words = ["configmap"] if kind.lower() == "configmap" else ["secret", "generic"]
    return shlex.join(["kubectl", "create", *words, named(name), *namespaced(namespace), "--from-literal=KEY=VALUE"])


def logs_of_service(name: str, namespace: str) -> str:
    """Return the command that prints the last lines of the logs of a Service's pods."""
    return shlex.join(["kubectl", "logs", f"service/{name}", *namespaced(namespace), "--all-pods", "--tail=20"])


def create_certificate(secret: Reference) -> str:
    """Return the command that creates the Secret of a serving certificate, with files to fill in."""
    return shlex.join(["kubectl", "create", *_certificate(secret), *namespaced(secret.namespace)])


def replace_certificate(secret: Reference) -> str:
    """Return the command that replaces the certificate in a Secret, with files to fill in."""
    space = namespaced(secret.namespace)
    new = shlex.join(["kubectl", "create", *_certificate(secret), "--dry-run=client", "-o", "yaml"])
    return f"{new} | {shlex.join(['kubectl', 'apply', *space, '-f', '-'])}"


def _certificate(secret: Reference) -> list[str]:
    return ["secret", "tls", named(secret.name), "--cert=FILE.crt", "--key=FILE.key"]


def logs(pod: Reference, container: str, *, previous: bool) -> str:
    """Return the command that prints a container's log, or that of the one that ran before."""
    return kubectl("logs", pod, "-c", container, *(["--previous"] if previous else []))
