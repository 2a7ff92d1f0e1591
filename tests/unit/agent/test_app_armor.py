"""AppArmor profile of a static pod's container, whose annotations no server converted to fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.podspec import security
from cri.messages import SecurityProfile
from tests.unit.agent.pods import pod


@pytest.mark.parametrize(
    ("own", "annotation", "whole", "expected"),
    [
        ("Unconfined", "runtime/default", "RuntimeDefault", "Unconfined"),
        (None, "unconfined", "RuntimeDefault", "Unconfined"),
        (None, "localhost/a", "RuntimeDefault", "Localhost"),
        (None, "mine", "Unconfined", "Unconfined"),
        (None, "", "RuntimeDefault", "RuntimeDefault"),
    ],
)
def test_a_containers_own_profile_counts_first_then_its_annotation_then_the_pods_profile(
    own: str | None, annotation: str, whole: str, expected: str
) -> None:
    mine = {"appArmorProfile": {"type": own}} if own else {}
    given = pod({"name": "main", "securityContext": mine}, securityContext={"appArmorProfile": {"type": whole}})
    given.metadata.annotations = {"container.apparmor.security.beta.kubernetes.io/main": annotation}
    found = security.container_context(
        given, given.spec.containers[0], seccomp_default=False, seccomp_root=Path("/seccomp")
    ).apparmor
    assert SecurityProfile.ProfileType.Name(found.profile_type) == expected
