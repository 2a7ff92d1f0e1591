"""All checks in the benchmark's order, then Wherry's own, and the table in docs/security.md that is generated from them."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from kube.error_words import words
from wherry.security import (
    api_server,
    configuration,
    container_runtime,
    control_plane_files,
    controllers,
    etcd,
    nodes,
    pod_standards,
    policies,
    rbac,
)
from wherry.security.facts import Facts
from wherry.security.rows import Check, CheckResult, failed, not_here

CHECKS: tuple[Check, ...] = (
    *control_plane_files.CHECKS,
    *api_server.CHECKS,
    *controllers.CHECKS,
    *etcd.CHECKS,
    *configuration.CHECKS,
    *nodes.CHECKS,
    *rbac.CHECKS,
    *pod_standards.CHECKS,
    *policies.CHECKS,
    *container_runtime.CHECKS,
)


def results(facts: Facts) -> Iterator[tuple[Check, CheckResult]]:
    """Run all checks. On a worker only its own files and its kubelet are checked; it may not read the rest."""
    for check in CHECKS:
        if facts.settings.is_worker and not check.for_worker:
            yield check, not_here("checked on control-plane machines")
            continue
        try:
            found = check.look(facts)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
            why = " ".join(str(error).split()) or words(error)
            found = failed(f"it cannot be checked: {why}", "repair what is named there")
        yield check, found


def markdown() -> str:
    """Return the table of docs/security.md."""
    rows = [f"| {check.id} | {check.title} | {check.state} |" for check in CHECKS]
    return "\n".join(("| check | title | result |", "| --- | --- | --- |", *rows))


if __name__ == "__main__":
    print(markdown())
