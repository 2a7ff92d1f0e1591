"""Claims' notes in upstream's format, and CDI devices as CRI can say them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.claims import checkpoint
from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.devices import cdi
from agent.managers.state_files import StateError

CLAIM = "067798be-454e-4be4-9047-1aa06aea63f7"
POD = "139cdb46-f989-4f17-9561-ca10cfb509a6"
DRIVER = "test-driver.cdi.k8s.io"
FIRST = ClaimDevice("worker-1", "dev-1", ("test request",), ("example.com/example=cdi-example",))


@pytest.mark.parametrize(
    ("claims", "checksum"),
    [
        ([ClaimInfo(CLAIM, "example", "default", {POD}, {DRIVER: [FIRST]})], 2570581864),
        (
            [
                ClaimInfo(CLAIM, "example-1", "default", {POD}, {DRIVER: [FIRST]}),
                ClaimInfo(
                    "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
                    "example-2",
                    "default",
                    {POD},
                    {DRIVER: [ClaimDevice("worker-1", "dev-2")]},
                ),
            ],
            2820117767,
        ),
    ],
)
def test_claims_are_written_as_upstream_writes_them(tmp_path: Path, claims: list[ClaimInfo], checksum: int) -> None:
    checkpoint.write(tmp_path, checkpoint.encode(claims))
    assert json.loads((tmp_path / "dra_manager_state").read_text())["Checksum"] == checksum
    assert checkpoint.load(tmp_path) == claims


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) == []
    checkpoint.write(tmp_path, checkpoint.encode([]))
    file = tmp_path / "dra_manager_state"
    file.write_text(file.read_text().replace("DRACheckpoint", "DRACheckpoin1"))
    with pytest.raises(StateError, match="checkpoint is corrupted"):
        checkpoint.load(tmp_path)


# -- CDI --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "version", "config", "known"),
    [
        ("containerd", "1.6.20~ds1", '{"disableTCPService": true}', False),
        ("containerd", "v1.7.3", '{"enableCDI": false}', False),
        ("containerd", "v1.7.3", '{"enableCDI": true}', True),
        ("containerd", "1.7.24~ds1", "", False),
        ("containerd", "2.1.0", '{"enableCDI": true}', True),
        ("containerd", "2.1.0", '{"enableCDI": false}', False),
        ("containerd", "2.3.0", "[]", True),
        ("cri-o", "1.20.0", "", True),
    ],
)
def test_runtimes_that_resolve_cdi_names_are_distinguished(name: str, version: str, config: str, known: bool) -> None:
    assert cdi.runtime_knows(name, version, {"config": config}) is known


SPECIFICATION = """
cdiVersion: 0.6.0
kind: vendor.com/gpu
containerEdits:
  env: [COMMON=1]
devices:
- name: a
  containerEdits:
    env: [A=x=y]
    deviceNodes: [{path: /dev/gpu-a}, {path: /dev/ctl, hostPath: /dev/gpu-ctl, permissions: r}]
- name: b
  containerEdits:
    mounts: [{hostPath: /opt/b, containerPath: /lib/b, options: [ro]}]
- name: hooked
  containerEdits:
    hooks: [{hookName: createContainer, path: /bin/true}]
"""


def test_devices_become_environment_nodes_and_mounts(tmp_path: Path) -> None:
    (tmp_path / "vendor.yaml").write_text(SPECIFICATION)
    found = cdi.resolve(["vendor.com/gpu=a", "vendor.com/gpu=b"], [tmp_path])
    assert found.env == {"COMMON": "1", "A": "x=y"}
    assert [(d.container_path, d.host_path, d.permissions) for d in found.devices] == [
        ("/dev/gpu-a", "/dev/gpu-a", "rwm"),
        ("/dev/ctl", "/dev/gpu-ctl", "r"),
    ]
    assert [(m.container_path, m.host_path, m.readonly) for m in found.mounts] == [("/lib/b", "/opt/b", True)]


def test_the_later_folder_wins(tmp_path: Path) -> None:
    for name, value in (("etc", "old"), ("run", "new")):
        (tmp_path / name).mkdir()
        devices = [{"name": "a", "containerEdits": {"env": [f"A={value}"]}}]
        (tmp_path / name / "v.json").write_text(json.dumps({"kind": "vendor.com/gpu", "devices": devices}))
    assert cdi.resolve(["vendor.com/gpu=a"], [tmp_path / "etc", tmp_path / "run"]).env == {"A": "new"}


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("vendor.com/gpu=c", "unresolvable CDI devices vendor.com/gpu=c"),
        ("vendor.com/gpu=hooked", "CDI device vendor.com/gpu=hooked needs hooks"),
    ],
)
def test_what_cannot_be_given_whole_is_refused(tmp_path: Path, device: str, message: str) -> None:
    (tmp_path / "vendor.yaml").write_text(SPECIFICATION)
    with pytest.raises(cdi.CDIError, match=message):
        cdi.resolve([device], [tmp_path])


def test_a_specification_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(cdi.CDIError, match=r"CDI specification .*bad\.json"):
        cdi.resolve(["vendor.com/gpu=a"], [tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        b"\xff",
        '{"kind": "vendor.com/gpu", "devices": [{"name": "a", "containerEdits": [1]}]}',
        '{"kind": "vendor.com/gpu", "devices": [{"name": "a", "containerEdits": {"mounts": [{}]}}]}',
        '{"kind": "vendor.com/gpu", "devices": [{"name": "a", "containerEdits": {"mounts": [1]}}]}',
        '{"kind": "vendor.com/gpu", "devices": [{"name": "a", "containerEdits": {"env": [1]}}]}',
        '{"kind": "vendor.com/gpu", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": 1}]}}]}',
    ],
)
def test_a_specification_of_another_form_is_an_error_of_the_device(tmp_path: Path, text: str | bytes) -> None:
    """Drivers write these files."""
    (tmp_path / "bad.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(cdi.CDIError):
        cdi.resolve(["vendor.com/gpu=a"], [tmp_path])
