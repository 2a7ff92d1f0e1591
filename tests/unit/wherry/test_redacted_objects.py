"""Objects in a bug report have no values that may be secret: of variables, data, arguments, headers and annotations."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib

import pytest

from tests.support.cost import Case, judge_time
from wherry.redaction import REMOVED, without_values


def test_arguments_headers_and_options_are_removed() -> None:
    spec = {
        "args": ["--password", "hunter2", "--port", "80"],
        "command": ["sh", "-c", "export PGPASSWORD=hunter2"],
        "httpHeaders": [{"name": "X", "value": "hunter2"}],
        "headers": [{"type": "Exact", "name": "X", "value": "hunter2"}],
        "queryParams": [{"name": "X", "value": "hunter2"}],
        "requestHeaderModifier": {
            "set": [{"name": "X", "value": "hunter2"}],
            "add": [{"name": "Y", "value": "hunter2"}],
        },
        "capabilities": {"add": ["NET_ADMIN"]},
        "volumeAttributes": {"a": "hunter2"},
        "options": {"a": "hunter2"},
        "apiToken": "hunter2",
        "apiTokens": ["hunter2", {"name": "b"}],
        "auth": "hunter2",
        "secretName": "kept",
    }
    found = without_values(spec)
    assert "hunter2" not in json.dumps(found) and found["capabilities"] == {"add": ["NET_ADMIN"]}
    assert found["args"] == ["--password", REMOVED, "--port", "80"] and found["secretName"] == "kept"


def test_parameters_of_drivers_are_removed_and_references_kept() -> None:
    storage = {"provisioner": "d", "parameters": {"pool": "hunter2", "name": "a"}}
    assert without_values(storage) == {"provisioner": "d", "parameters": {"pool": REMOVED, "name": REMOVED}}
    ingress = {"controller": "c", "parameters": {"apiGroup": "a", "kind": "K", "name": "n"}}
    assert without_values(ingress) == ingress


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (
            ["redis-server", "--requirepass", "x", "--port", "1"],
            ["redis-server", "--requirepass", REMOVED, "--port", "1"],
        ),
        (["redis-server", "-masterauth", "x"], ["redis-server", "-masterauth", REMOVED]),
        (["/usr/bin/redis-cli", "-a", "x", "ping"], ["/usr/bin/redis-cli", "-a", REMOVED, "ping"]),
        (["mysqladmin", "password", "x"], ["mysqladmin", "password", REMOVED]),
        (["rabbitmqctl", "add_user", "a", "x"], ["rabbitmqctl", "add_user", "a", REMOVED]),
        (["mysqladmin", "-u", "root", "-px", "ping"], ["mysqladmin", "-u", "root", REMOVED, "ping"]),
        (["sshpass", "-p", "x", "ssh", "-p", "22"], ["sshpass", "-p", REMOVED, "ssh", "-p", REMOVED]),
        (["curl", "-u", "a:x", "--user", "a:x"], ["curl", "-u", REMOVED, "--user", REMOVED]),
        (["curl", "-ua:x", "-sSu", "a:x", "--user=a:x"], ["curl", REMOVED, "-sSu", REMOVED, REMOVED]),
        (["timeout", "5", "docker", "login", "-p", "x"], ["timeout", "5", "docker", "login", "-p", REMOVED]),
        (["docker", "run", "-p", "80:80", "x"], ["docker", "run", "-p", "80:80", "x"]),
        (["openssl", "enc", "-kfile", "x"], ["openssl", "enc", "-kfile", "x"]),
        (["vault", "login", "x"], ["vault", "login", REMOVED]),
        (["mc", "alias", "set", "m", "https://x", "k", "x"], ["mc", "alias", "set", "m", "https://x", "k", REMOVED]),
        (["etcdctl", "--user", "root", "get", "x"], ["etcdctl", "--user", "root", "get", "x"]),
        (["token:", "x", "y"], ["token:", REMOVED, "y"]),
        (["aws_secret_access_key", "=", "x", "y"], ["aws_secret_access_key", "=", REMOVED, "y"]),
        (["-H", "Set-Cookie:", "sid=x"], ["-H", "Set-Cookie:", REMOVED]),
        (["mkdir", "-p", "x"], ["mkdir", "-p", "x"]),
        (["server", "-a", "x", "-u", "1:1", "-px"], ["server", "-a", "x", "-u", "1:1", "-px"]),
    ],
)
def test_passwords_behind_usual_options_of_commands_are_removed(command: list[str], left: list[str]) -> None:
    assert without_values({"command": command}) == {"command": left}


def test_arguments_are_those_of_the_program_that_the_command_names() -> None:
    container = {"command": ["redis-cli", "-h", "x"], "args": ["-a", "hunter2", "ping"]}
    assert without_values(container) == {"command": ["redis-cli", "-h", "x"], "args": ["-a", REMOVED, "ping"]}


@pytest.mark.parametrize("unit", ["curl", "-u", "docker", "login", "-p", "token:", "=", "-" + "s" * 100, "a" * 100])
def test_time_is_proportional_to_the_arguments(unit: str) -> None:
    judge_time(Case(unit, lambda size: [unit] * (size // len(unit)), without_values))


def test_objects_lose_values_of_variables_and_data() -> None:
    container = {
        "name": "c",
        "env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "y"}}}],
    }
    pod = {
        "metadata": {
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "a": "token=12345678"},
        },
        "spec": {"containers": [container]},
        "data": {"k": "v"},
    }
    assert without_values({"items": [pod]}) == {
        "items": [
            {
                "metadata": {"annotations": {"a": f"token={REMOVED}"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "env": [
                                {"name": "A", "value": REMOVED},
                                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "y"}}},
                            ],
                        }
                    ]
                },
                "data": {"k": REMOVED},
            }
        ]
    }


@pytest.mark.parametrize("wrapped", [False, True])
def test_compressed_objects_in_annotations_are_removed(*, wrapped: bool) -> None:
    """Rancher keeps what it applied so."""
    deployment = {"spec": {"env": [{"name": f"A{n}", "value": str(n * 7919)} for n in range(100)]}}
    data = json.dumps(deployment).encode()
    for packed in (gzip.compress(data), zlib.compress(data), bz2.compress(data), lzma.compress(data), data):
        text = (base64.encodebytes if wrapped else base64.b64encode)(packed).decode()
        found = without_values({"metadata": {"annotations": {"objectset.rio.cattle.io/applied": text, "a": "b"}}})
        kept = found["metadata"]["annotations"]
        assert kept["a"] == "b" and kept["objectset.rio.cattle.io/applied"].startswith(REMOVED)
        assert len(kept["objectset.rio.cattle.io/applied"]) < len(REMOVED) + 80


def test_what_a_driver_adds_to_an_attachment_is_removed() -> None:
    found = without_values({"status": {"attached": True, "attachmentMetadata": {"x": "value"}}})
    assert found["status"] == {"attached": True, "attachmentMetadata": {"x": REMOVED}}


def test_objects_in_annotations_lose_values_as_other_objects() -> None:
    container = {"env": [{"name": "DB_URL", "value": "hunter2"}], "args": ["--password", "hunter2"]}
    text = json.dumps({"kind": "Pod", "spec": {"containers": [container]}, "data": {"a": "hunter2"}})
    found = without_values({"metadata": {"annotations": {"tool.example/applied": text, "b": json.dumps([text])}}})
    annotations = found["metadata"]["annotations"]
    assert "hunter2" not in json.dumps(annotations)
    applied = json.loads(annotations["tool.example/applied"])
    assert applied["spec"]["containers"][0]["env"] == [{"name": "DB_URL", "value": REMOVED}]
    for odd in ("[" * 100_000, '{"a": ' + "1" * 10_000 + "}", "{not JSON, token=12345678}", '["password=hunter2"]'):
        assert "hunter2" not in without_values({"a": odd})["a"] and "12345678" not in without_values({"a": odd})["a"]
