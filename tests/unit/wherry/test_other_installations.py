"""Other installations in a network namespace, by their processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from wherry import other_installations, reset
from wherry.settings import Settings

ROOT, OTHER = b"Uid:\t0\t0\t0\t0\n", b"Uid:\t0\t5\t0\t0\n"
AGENT = b"python\0-P\0-m\0wherry.roles\0agent\0"


def test_only_processes_of_root_in_this_network_namespace_and_outside_of_pods_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_installations, "_PROC", tmp_path)
    (tmp_path / "own").mkdir()
    own = Settings(prefix=str(tmp_path / "own"))
    pod = f"0::{own.layout.cgroup.rstrip('/')}/kubepods/pod1/c\n".encode()
    process(tmp_path / "self", b"python\0")
    process(tmp_path / "1", AGENT + b"--prefix\0" + bytes(tmp_path / "x/../own") + b"\0")
    process(tmp_path / "2", AGENT + b"--prefix\0/a\0", users=OTHER)
    process(tmp_path / "3", AGENT + b"--prefix\0/b\0", cgroup=pod)
    process(tmp_path / "4", AGENT + b"--prefix\0/c\0", namespace="net:[2]")
    process(tmp_path / "5", b"grep\0wherry\0")
    process(tmp_path / "6", b"/usr/bin/containerd-shim-runc-v2\0-address\0/run/containerd/containerd.sock\0")
    (tmp_path / "x").mkdir()
    assert other_installations.prefixes(own) == []
    process(tmp_path / "7", AGENT)  # a unit's
    process(tmp_path / "8", AGENT + b"--prefix\0/d\0")
    process(
        tmp_path / "9", b"containerd-shim-runc-v2\0-address\0/e" + bytes(Settings().layout.containerd_socket) + b"\0"
    )
    assert other_installations.prefixes(own) == ["/", "/d", "/e"]


def process(
    folder: Path, line: bytes, *, users: bytes = ROOT, cgroup: bytes = b"0::/\n", namespace: str = "net:[1]"
) -> None:
    (folder / "ns").mkdir(parents=True)
    (folder / "ns/net").symlink_to(namespace)
    (folder / "status").write_bytes(users)
    (folder / "cgroup").write_bytes(cgroup)
    (folder / "cmdline").write_bytes(line)


async def test_the_network_of_another_installation_stays_when_a_join_beside_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_installations, "prefixes", lambda settings: ["/other"])
    own = Settings(prefix=str(tmp_path))
    own.layout.proxy_configuration.parent.mkdir(parents=True)
    own.layout.proxy_configuration.write_text("")
    await reset._clean_network(own)  # a unit test may not start the programs that would remove them
