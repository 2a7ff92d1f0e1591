"""Files that the agent decodes, with content that is no JSON or YAML: each reader has its own outcome, and none another one.

The readers are found in the source: a module that decodes a file without an entry here fails the first test.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agent
from agent import configuration_files, preconditions
from agent.claims import checkpoint as claims
from agent.csi import layout
from agent.devices import cdi
from agent.devices import checkpoint as devices
from agent.images.credentials import configuration
from agent.images.image_access import ImageAccess
from agent.images.preloaded_images import PreloadedImages
from agent.images.pull_record_files import file_name
from agent.kubelet_configuration import ConfigError
from agent.managers import cpu_state, memory_state
from agent.managers.state_files import StateError
from agent.orphans import cni, machine
from agent.pods import resource_state
from agent.pods.static import StaticPods
from agent.pods.steps import resize
from agent.podspec.subordinate_ids import IdRange
from agent.podspec.userns import UserNamespaces
from agent.shutdown import state as shutdown
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod

ROOT = Path(agent.__file__).parent

DAMAGES = {
    "binary in a string": b'{"imageRef":"\xff","image":"\xff","startTime":"\xff","uidMappings":[]}',
    "binary in a key": b'{"\xff":{}}',
    "binary": b"\xff\xfe\x00",
    "cut": b'{"a":',
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "empty": b"",
    "no date": b"a: 2026-99-99",
}
JSON, YAML = list(DAMAGES), [name for name in DAMAGES if name != "empty"]

Check = Callable[[Path, bytes], str]
"""Writes damaged content, reads it, checks the outcome, and returns what was reported."""


def raises(error: type[Exception], read: Callable[[Path], object], name: str) -> Check:
    def check(root: Path, damage: bytes) -> str:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(damage)
        with pytest.raises(error) as raised:
            read(root)
        return str(raised.value)

    return check


def restored_as_empty(root: Path, damage: bytes) -> str:
    (root / devices.FILE).write_bytes(damage)
    assert devices.restore(root) == ([], {})
    return ""


def pulled_closed(root: Path, damage: bytes) -> str:
    (root / "pulled").mkdir()
    (root / "pulled" / file_name("sha256:abc")).write_bytes(damage)
    access = ImageAccess(root, lambda: "2026-01-01T00:00:00Z")
    access.load()
    assert not access.open_to_all("r.test/app:1", "sha256:abc") and access.open_to_all("r.test/other:1", "sha256:other")
    return ""


def pulling_closed(root: Path, damage: bytes) -> str:
    (root / "pulling").mkdir()
    (root / "pulling" / file_name("r.test/app:1")).write_bytes(damage)
    access = ImageAccess(root, lambda: "2026-01-01T00:00:00Z")
    access.load()
    assert not access.open_to_all("r.test/app:1", "sha256:abc") and access.open_to_all("r.test/other:1", "sha256:other")
    access.failed(access.begin("r.test/app:1", "sha256:abc"))
    assert not access.open_to_all("r.test/app:1", "sha256:abc"), "a failed pull opens nothing"
    return ""


def none_preloaded(root: Path, damage: bytes) -> str:
    (root / "preloaded.json").write_bytes(damage)
    found = PreloadedImages(root / "preloaded.json")
    found.load()
    assert not found.ids
    found.replace(frozenset(["sha256:abc"]))
    found = PreloadedImages(root / "preloaded.json")
    found.load()
    assert found.ids == {"sha256:abc"}
    return "preloaded.json"


def pods_without_ids(root: Path, damage: bytes) -> str:
    (root / "uid").mkdir()
    (root / "uid" / "userns").write_bytes(damage)
    users = UserNamespaces(root, IdRange(65536, 65536))
    users.load()
    with pytest.raises(Exception, match=r"cannot read .*uid/userns"):
        users.ensure(pod(hostUsers=False, metadata={"uid": "other"}), "", {"": True})
    return ""


def no_size_known(root: Path, damage: bytes) -> str:
    (root / resize.CHECKPOINT).write_bytes(damage)
    assert resize._load(root) == {}
    return resize.CHECKPOINT


def no_shutdown_known(root: Path, damage: bytes) -> str:
    (root / shutdown.FILE).write_bytes(damage)
    assert shutdown.load(root) == (0.0, 0.0)
    return shutdown.FILE


def other_pods_run(root: Path, damage: bytes) -> str:
    (root / "a.yaml").write_bytes(damage)
    (root / "b.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}"
    )
    found = StaticPods(root, "node", lambda _: None, clock=FakeClock())._read()
    assert [each.metadata.name for each in found.values()] == ["b-node"]
    return ""


def no_sandbox_known(root: Path, damage: bytes) -> str:
    of: Any = SimpleNamespace(results=root)
    (root / "net-id-eth0").write_bytes(damage)
    assert not list(cni.results(of, "id")) and not cni.sandboxes_in(of, "/run/netns/a")
    return "net-id-eth0"


CONFIGURATION = raises(ConfigError, lambda root: configuration_files.load(root / "k.yaml"), "k.yaml")

CHECKS: dict[str, list[tuple[Check, list[str]]]] = {
    "managers/state_files.py": [
        (raises(StateError, lambda root: cpu_state.load(root, "static"), cpu_state.FILE), JSON),
        (raises(StateError, lambda root: memory_state.load(root, "Static"), memory_state.FILE), JSON),
        (raises(StateError, claims.load, claims.FILE), JSON),
        (raises(ConfigError, resource_state.PodResourceStates, resource_state.ALLOCATED), JSON),
        (raises(ConfigError, resource_state.PodResourceStates, resource_state.ACTUATED), JSON),
        (restored_as_empty, JSON),
    ],
    "images/pull_records.py": [(pulled_closed, JSON)],
    "images/preloaded_images.py": [(none_preloaded, JSON)],
    "images/pull_intents.py": [(pulling_closed, JSON)],
    "podspec/userns.py": [(pods_without_ids, JSON)],
    "pods/steps/resize.py": [(no_size_known, JSON)],
    "shutdown/state.py": [(no_shutdown_known, JSON)],
    "csi/layout.py": [
        (
            raises(layout.DamagedVolumeDataError, lambda root: layout._read(root / "vol_data.json"), "vol_data.json"),
            JSON,
        )
    ],
    "orphans/cni.py": [(no_sandbox_known, JSON)],
    "pods/static.py": [(other_pods_run, YAML)],
    "configuration_files.py": [(CONFIGURATION, YAML)],
    "images/credentials/configuration.py": [
        (raises(ConfigError, lambda root: configuration.load(root / "c.yaml"), "c.yaml"), YAML)
    ],
    "devices/cdi.py": [(raises(cdi.CDIError, lambda root: cdi.resolve(["v/c=d"], [root]), "d.json"), YAML)],
}
"""By module that decodes files: the files of each kind."""

RAW = {"read_text", "read_bytes"}


def calls(module: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_every_module_that_decodes_a_file_is_checked_here() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "from agent.files.decoding import" in path.read_text()
    }
    assert found == {*CHECKS, "kubelet_configuration.py"}, "that one decodes the text of configuration_files.py"


def test_files_are_decoded_in_one_place() -> None:
    for path in ROOT.rglob("*.py"):
        if path.name == "decoding.py":
            continue
        for call in calls(path):
            inner = {name_of(each) for each in ast.walk(call) if isinstance(each, ast.Call)}
            decodes = name_of(call) in {"loads", "decode", "safe_load"}
            assert not (decodes and inner & RAW), f"{path}:{call.lineno} decodes a file with exceptions of its own"


CASES = [(check, kind, damage) for kind, checks in CHECKS.items() for check, damages in checks for damage in damages]


@pytest.mark.parametrize(("check", "kind", "damage"), CASES, ids=[f"{kind}-{damage}" for _, kind, damage in CASES])
def test_a_damaged_file_is_named_and_nothing_else_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, check: Check, kind: str, damage: str
) -> None:
    with caplog.at_level(logging.INFO):
        reported = check(tmp_path, DAMAGES[damage])
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert any(name in reported + caplog.text for name in names)


def test_text_files_of_the_machine_may_have_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_bytes(b"# caf\xe9\nnameserver 192.0.2.1\n")
    assert "nameserver 192.0.2.1" in preconditions.text_of(tmp_path / "resolv.conf")
    (tmp_path / "192.0.2.7").write_bytes(b"\xff\neth0")
    (tmp_path / "192.0.2.8").write_text("a" * 64 + "\neth0")
    of: Any = SimpleNamespace(reservations=tmp_path)
    assert [item.name for item in machine.addresses(of)] == ["192.0.2.8"]
