"""Security contexts of containers: seccomp profiles and users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.podspec import environment, kernel_paths, security
from tests.unit.agent.pods import pod


# -- security ---------------------------------------------------------------------------------------------------------
def _context(container: dict[str, Any] | None = None, **spec: Any) -> Any:
    given = pod({"name": "main", "securityContext": container or {}}, **spec)
    return security.container_context(
        given, given.spec.containers[0], seccomp_default=True, seccomp_root=Path("/root/seccomp")
    )


def test_seccomp_profiles() -> None:
    kinds = type(_context().seccomp).ProfileType
    assert _context().seccomp.profile_type == kinds.RuntimeDefault
    assert _context({"privileged": True}).seccomp.profile_type == kinds.Unconfined
    assert _context({"seccompProfile": {"type": "Unconfined"}}).seccomp.profile_type == kinds.Unconfined
    local = _context({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}).seccomp
    assert (local.profile_type, local.localhost_ref) == (kinds.Localhost, "/root/seccomp/a/b.json")


def test_groups_of_volumes_are_added_once_to_those_of_the_pod() -> None:
    given = pod({"name": "main"}, securityContext={"supplementalGroups": [5], "fsGroup": 7})
    found = security.container_context(
        given, given.spec.containers[0], seccomp_default=True, seccomp_root=Path("/"), groups={9, 7, 5, 8}
    )
    assert list(found.supplemental_groups) == [5, 7, 8, 9]


def test_masked_paths_include_the_thermal_throttling_of_cpus_that_have_it(tmp_path: Path) -> None:
    for folder in ("cpu0/thermal_throttle", "cpu1", "cpu10/thermal_throttle", "cpufreq/thermal_throttle"):
        (tmp_path / folder).mkdir(parents=True)
    assert kernel_paths.masked(tmp_path)[-3:] == [
        "/sys/devices/virtual/powercap",
        f"{tmp_path}/cpu0/thermal_throttle",
        f"{tmp_path}/cpu10/thermal_throttle",
    ]
    assert _context().masked_paths == kernel_paths.masked()
    assert not _context({"procMount": "Unmasked"}).masked_paths


@pytest.mark.parametrize("profile", ["", "../etc/passwd", "/etc/passwd"])
def test_a_local_profile_that_is_empty_or_leads_out_is_refused(profile: str) -> None:
    with pytest.raises(environment.ContainerConfigError):
        _context({"seccompProfile": {"type": "Localhost", "localhostProfile": profile}})


@pytest.mark.parametrize(
    ("context", "image", "refused"),
    [
        ({}, security.ImageUser(), False),
        ({"runAsNonRoot": True}, security.ImageUser(), True),
        ({"runAsNonRoot": True}, security.ImageUser(0), True),
        ({"runAsNonRoot": True}, security.ImageUser(1000), False),
        ({}, security.ImageUser(1 << 32), False),
        ({"runAsNonRoot": True}, security.ImageUser((1 << 31) - 1), False),
        ({"runAsNonRoot": True}, security.ImageUser(1 << 31), True),
        ({"runAsNonRoot": True}, security.ImageUser(1 << 32), True),
        ({"runAsNonRoot": True}, security.ImageUser(-1), True),
        ({"runAsNonRoot": True}, security.ImageUser(-(1 << 63)), True),
        ({"runAsNonRoot": True, "runAsUser": 5}, security.ImageUser(1 << 32), False),
        ({"runAsNonRoot": True}, security.ImageUser(None, "www"), True),
        ({"runAsNonRoot": True, "runAsUser": 5}, security.ImageUser(None, "www"), False),
        ({"runAsNonRoot": True, "runAsUser": 0}, security.ImageUser(1000), True),
    ],
)
def test_a_container_that_must_not_be_root(context: dict[str, Any], image: security.ImageUser, refused: bool) -> None:
    given = pod({"name": "main", "securityContext": context})
    if refused:
        with pytest.raises(environment.ContainerConfigError):
            security.verify_user(given, given.spec.containers[0], image)
    else:
        security.verify_user(given, given.spec.containers[0], image)


def test_a_user_id_that_no_process_can_have_is_refused_with_upstream_s_message() -> None:
    """containerd looks up 4294967296 as a user's name, which the image's /etc/passwd gives to root (CVE-2026-46680)."""
    given = pod({"name": "main", "securityContext": {"runAsNonRoot": True}})
    with pytest.raises(environment.ContainerConfigError) as refused:
        security.verify_user(given, given.spec.containers[0], security.ImageUser(1 << 32))
    metadata = given.metadata
    assert str(refused.value) == (
        "container has runAsNonRoot and image has an invalid user id (4294967296). (Must be 1-(2147483647)): must be "
        f'between 0 and 2147483647, inclusive (pod: "{metadata.name}_{metadata.namespace}({metadata.uid})", container: main)'
    )
