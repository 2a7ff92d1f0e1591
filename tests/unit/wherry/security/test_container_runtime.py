"""Check of containerd's restart monitor: output of ctr, and releases with the fix."""

from __future__ import annotations

import pytest

from wherry import containerd
from wherry.security import container_runtime
from wherry.security.facts import Containerd, Facts
from wherry.settings import Settings

VERSION = """\
Client:
  Version:  1.7.33
  Revision: abc

Server:
  Version:  1.6.20~ds1
  Revision: 1.6.20~ds1-1+deb12u3
"""
PLUGINS = """\
TYPE                                      ID          PLATFORMS      STATUS
io.containerd.content.v1                  content     -              ok
{type}                                    restart     -              {status}
"""


def test_the_server_s_version_is_read_and_not_the_client_s() -> None:
    assert containerd.server_version(VERSION) == "1.6.20~ds1"
    assert containerd.server_version("") == ""


@pytest.mark.parametrize("type", ["io.containerd.internal.v1", "io.containerd.monitor.container.v1"])
def test_the_restart_monitor_is_found_under_both_its_names(type: str) -> None:
    assert container_runtime.loads_restart_monitor(PLUGINS.format(type=type, status="ok"))
    assert not container_runtime.loads_restart_monitor(PLUGINS.format(type=type, status="skip"))
    assert not container_runtime.loads_restart_monitor(PLUGINS.replace("restart", "opt"))


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ("1.6.20~ds1", False), ("v1.7.32", False), ("v1.7.33", True), ("2.0.9", False), ("2.0.10", True),
        ("2.1.8", False), ("2.1.9+unknown", True), ("2.2.5", True), ("2.3.1", False), ("2.3.2", True), ("2.4.0", True),
        ("3.0.0", True), ("1.8.0", False), ("", False),
    ],
)  # fmt: skip
def test_releases_with_the_fix(version: str, fixed: bool) -> None:
    assert container_runtime.ignores_labels_of_images(version) is fixed
    (check,) = container_runtime.CHECKS
    found = Facts(
        Settings(runtime_endpoint="unix:///run/containerd/containerd.sock"),
        containerd=Containerd(version, restart_monitor=True),
    )
    assert check.look(found).verdict == ("PASS" if fixed else "WARN")


def test_another_runtime_has_no_such_plugin() -> None:
    (check,) = container_runtime.CHECKS
    assert check.look(Facts(Settings())).verdict == "N/A"
