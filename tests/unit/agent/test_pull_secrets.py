"""Pull secrets of any size and content: the parts that are read, the number of reads, and the thread."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.images import pull_secrets, registry_auth
from agent.images.credentials.keyring import Keyring
from agent.images.pull_secrets import PullSecrets
from agent.images.registry_auth import MOST
from kube.api import core_v1, meta_v1

IMAGE = "a.io/x:1"


def secret(auths: Any, name: str = "s", version: str = "1") -> core_v1.Secret:
    text = json.dumps({"auths": auths}).encode()
    return core_v1.Secret(
        metadata=meta_v1.ObjectMeta(name=name, namespace="n", uid=name, resource_version=version),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": base64.b64encode(text).decode()},
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which entries are read, one an entry."""
    found, real = list[str](), registry_auth.normal

    def counted(address: str) -> str:
        found.append(threading.current_thread().name)
        return real(address)

    monkeypatch.setattr(registry_auth, "normal", counted)
    return found


def test_only_so_many_entries_of_a_pods_secrets_are_read(made: list[str]) -> None:
    auths = {f"r{number}.io": {"auth": "YTpi"} for number in range(20 * MOST)}
    assert len(PullSecrets().read([secret(auths, f"s{number}") for number in range(40)])) == MOST
    assert len(made) == MOST


def test_entries_that_hold_nothing_count_too() -> None:
    looked = list[str]()

    class Entries(dict[str, Any]):
        def items(self) -> Any:
            for item in super().items():
                looked.append(item[0])
                yield item

    registry_auth._entries(Entries({f"r{number}.io": 5 for number in range(20 * MOST)}), registry_auth.Source("node"))
    assert len(looked) == MOST


def test_only_so_much_text_of_a_pods_secrets_is_read() -> None:
    filler = "x" * (pull_secrets.LARGEST * 3 // 4 - 1000)
    first, second = secret({"a.io": {"username": "u"}, "b.io": {"email": filler}}), secret({"c.io": {}}, "t")
    large = secret({"d.io": {"email": filler}}, "l")
    assert [c.address for c in PullSecrets().read([first, large, second])] == ["a.io", "b.io"]
    assert [c.address for c in PullSecrets().read([second, first])] == ["c.io", "a.io", "b.io"]


def test_a_secret_is_read_once_for_each_of_its_versions(made: list[str]) -> None:
    secrets = PullSecrets()
    for _ in range(50):
        assert [c.username for c in secrets.matching(IMAGE, [secret({"a.io": {"username": "u"}})])] == ["u"]
    assert len(made) == 1
    assert [c.username for c in secrets.matching(IMAGE, [secret({"a.io": {"username": "v"}}, version="2")])] == ["v"]


def test_what_is_kept_of_secrets_has_a_bound() -> None:
    secrets = PullSecrets()
    for number in range(100):
        secrets.read([secret({"a.io": {"email": "x" * 2**20}}, f"s{number}")])
    assert 0 < secrets._size <= pull_secrets.KEPT and len(secrets._kept) < 16
    assert secrets._size == sum(size for size, _ in secrets._kept.values())
    assert list(secrets._kept)[-1][1] == "s99"


async def test_secrets_are_read_beside_the_event_loop(made: list[str], tmp_path: Path) -> None:
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u"))
    found = await Keyring(()).find(pod, IMAGE, [secret({"a.io": {"username": "u"}})])
    assert [c.username for c in found] == ["u"]
    assert made and threading.current_thread().name not in made


@pytest.mark.parametrize(
    "bad",
    [
        {"username": 5},
        {"username": "u", "password": ["p"]},
        {"username": "\ud800"},
        {"username": "u", "password": "\udfff"},
        {"identitytoken": {}},
        {"auth": 5},
        {"auth": "/w=="},
        "text",
        None,
    ],
)
def test_an_entry_that_is_no_credential_is_left_out_and_the_others_are_tried(bad: Any) -> None:
    known = PullSecrets().matching(IMAGE, [secret({"a.io/x": bad, "a.io": {"username": "u", "password": "p"}})])
    assert [(c.auth().username, c.auth().password) for c in known] == [("u", "p")]
    assert all(c.digest() for c in known)
