from __future__ import annotations

import asyncio
import gc
import json
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from control.auth import audit_log
from control.auth.audit import ERRORS, LONGEST_AGENT, MOST_USERS, Auditor, shown_agent
from control.auth.audit_limits import LONGEST_MESSAGE
from control.auth.audit_log import QUEUE, LogFile
from control.auth.audit_policy import Policy, PolicyError
from control.auth.user import AuthzAttributes, UserInfo
from kube.bounded_cache import LONGEST_USER
from tests.support.clock import FakeClock

JANE = UserInfo("jane", "", ("dev", "system:authenticated"))


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    return Policy.parse(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}))


def attributes(verb: str, what: str, name: str = "x", namespace: str = "shop") -> AuthzAttributes:
    if what.startswith("/"):
        return AuthzAttributes(user=JANE, verb=verb, path=what)
    resource, _, subresource = what.partition("/")
    resource, _, group = resource.partition(".")
    return AuthzAttributes(
        user=JANE,
        verb=verb,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


@pytest.mark.parametrize(
    "rule, request_, matches",
    [
        ({}, attributes("get", "pods"), True),
        ({"users": ["bob"]}, attributes("get", "pods"), False),
        ({"userGroups": ["dev"]}, attributes("get", "pods"), True),
        ({"verbs": ["list"]}, attributes("get", "pods"), False),
        ({"namespaces": ["shop"]}, attributes("get", "pods"), True),
        ({"namespaces": ["other"]}, attributes("get", "pods"), False),
        ({"namespaces": ["shop"]}, attributes("get", "/metrics"), False),
        ({"resources": [{"resources": ["pods"]}]}, attributes("get", "pods"), True),
        ({"resources": [{"resources": ["pods"]}]}, attributes("get", "pods/log"), False),
        ({"resources": [{"resources": ["pods/*"]}]}, attributes("get", "pods/log"), True),
        ({"resources": [{"resources": ["*/log"]}]}, attributes("get", "pods/log"), True),
        ({"resources": [{"group": "apps"}]}, attributes("get", "deployments.apps"), True),
        ({"resources": [{"group": "apps"}]}, attributes("get", "pods"), False),
        ({"resources": [{"resources": ["secrets"], "resourceNames": ["x"]}]}, attributes("get", "secrets"), True),
        ({"resources": [{"resources": ["secrets"], "resourceNames": ["x"]}]}, attributes("get", "secrets", "y"), False),
        ({"nonResourceURLs": ["/healthz*"]}, attributes("get", "/healthz/ping"), True),
        ({"nonResourceURLs": ["/healthz*"]}, attributes("get", "pods"), False),
    ],
)
def test_rules_match_requests(rule: dict[str, Any], request_: AuthzAttributes, matches: bool) -> None:
    found = policy({"level": "Metadata", **rule})
    assert (found.verdict(request_) is not None) is matches


def test_the_first_rule_that_matches_decides() -> None:
    found = policy({"level": "None", "verbs": ["get"]}, {"level": "Request"})
    assert found.verdict(attributes("get", "pods")) is None
    verdict = found.verdict(attributes("create", "pods"))
    assert verdict is not None and verdict.level == "Request"


@pytest.mark.parametrize(
    "text, why",
    [
        ("rules: []", "not of kind Policy"),
        ("kind: Policy\nrules: [{level: Metadata}]", "not of audit.k8s.io/v1"),
        ("apiVersion: audit.k8s.io/v1\nkind: Policy", "no rules"),
        ("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]", "level: must be one of"),
        ("{", "not YAML"),
    ],
)
def test_a_policy_that_cannot_be_used_is_reported(text: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        Policy.parse(text)


class Lines:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, line: bytes, user: bytes = b"") -> None:
        self.events.append(json.loads(line))


def run(level: str, **more: Any) -> list[dict[str, Any]]:
    """Take one create through and return what was written of it."""
    lines = Lines()
    auditor = Auditor(policy({"level": level}, **more), [lines], FakeClock())
    note = auditor.begin(attributes("create", "pods"), "id-1", "/api/v1/pods?x=y", ["192.0.2.1"], "kubectl")
    assert note is not None
    note.decided(allowed=True, reason="because")
    body = {"kind": "Pod", "metadata": {"name": "x", "managedFields": [{}]}}
    note.request_object = json.loads(json.dumps(body))
    note.stage("ResponseComplete", 201, json.loads(json.dumps(body)))
    return lines.events


def test_an_audit_event_contains_user_request_and_response() -> None:
    first, last = run("Metadata")
    assert (first["stage"], last["stage"]) == ("RequestReceived", "ResponseComplete")
    assert last["user"] == {"username": "jane", "groups": ["dev", "system:authenticated"]}
    assert last["objectRef"] == {"resource": "pods", "namespace": "shop", "name": "x", "apiVersion": "v1"}
    assert last["responseStatus"] == {"metadata": {}, "code": 201}
    assert last["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert last["sourceIPs"] == ["192.0.2.1"] and last["requestURI"] == "/api/v1/pods?x=y"
    assert last["requestReceivedTimestamp"] == "2026-01-01T00:00:00.000000Z"
    assert "requestObject" not in last and "responseObject" not in last


def test_audit_levels_select_the_objects_in_the_event() -> None:
    assert "requestObject" in run("Request")[-1] and "responseObject" not in run("Request")[-1]
    assert run("RequestResponse")[-1]["responseObject"]["metadata"]["name"] == "x"
    bare = run("RequestResponse", omitManagedFields=True)[-1]
    assert bare["requestObject"]["metadata"] == {"name": "x"} == bare["responseObject"]["metadata"]


def test_stages_can_be_left_out() -> None:
    assert [e["stage"] for e in run("Metadata", omitStages=["RequestReceived"])] == ["ResponseComplete"]


def test_a_refusal_is_written_with_its_reason() -> None:
    lines = Lines()
    note = Auditor(policy({"level": "Metadata"}), [lines], FakeClock()).begin(
        attributes("get", "pods"), "", "/", [], ""
    )
    assert note is not None
    note.stage("ResponseComplete", 403, {"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden"})
    assert lines.events[-1]["responseStatus"] == {
        "metadata": {},
        "code": 403,
        "status": "Failure",
        "message": "no",
        "reason": "Forbidden",
    }


def test_nothing_of_a_written_event_stays_in_memory() -> None:
    lines = Lines()
    note = Auditor(policy({"level": "Metadata"}), [lines], FakeClock()).begin(
        attributes("get", "pods"), "", "/", [], ""
    )
    assert note is not None

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    note.line("ResponseComplete", 200, None)
    # What earlier tests left is collected and frozen: its finalizers must not count here.
    gc.collect()
    gc.freeze()
    before = objects()
    for _ in range(1000):
        note.line("ResponseComplete", 200, None)
    assert objects() - before < 100


def written(path: Path, *lines: bytes, **limits: int) -> None:
    async def write() -> None:
        file = LogFile(path, **limits)
        for line in lines:
            file.write(line)
            await asyncio.sleep(0)
        file.close()

    asyncio.run(write())


def test_the_file_is_rotated_by_size_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, *(b"%030d\n" % number for number in range(20)), max_bytes=100, backups=2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    old = sorted(tmp_path.glob("audit-*.log"))
    assert len(old) == 2 and all(p.stat().st_size <= 100 for p in (*old, path))
    assert path.read_bytes().splitlines()[-1] == b"%030d" % 19
    written(path, b"more\n")
    assert path.read_bytes().endswith(b"more\n") and len(path.read_bytes().splitlines()) > 1


async def test_lines_reach_the_file_within_a_moment_or_when_there_are_many(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = LogFile(path)

    async def until(lines: int) -> None:
        async with asyncio.timeout(10):
            while path.read_bytes().count(b"\n") != lines:
                await asyncio.sleep(0.005)

    file.write(b"a\n")
    assert path.read_bytes() == b"", "it waits for others"
    await until(1)
    for number in range(audit_log.BATCH):
        file.write(b"%d\n" % number)
    assert file._timer is None, "so many wait for nobody"
    await until(1 + audit_log.BATCH)
    file.close()


def test_lines_that_a_disk_does_not_take_in_time_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "BATCH", QUEUE * 2)

    async def write() -> int:
        file = LogFile(tmp_path / "audit.log")
        for _ in range(QUEUE + 5):  # in one turn of the loop, before the thread has seen any
            file.write(b"x\n")
        file.close()
        return file.dropped

    assert asyncio.run(write()) == 5
    assert (tmp_path / "audit.log").read_bytes() == b"x\n" * QUEUE


@pytest.mark.parametrize("batch", [2, 10_000])
def test_waiting_lines_are_bounded_by_their_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(audit_log, "BATCH", batch)
    monkeypatch.setattr(audit_log, "QUEUE_BYTES", 100)
    free, path = threading.Event(), tmp_path / "audit.log"
    original = LogFile._append

    def append(self: LogFile, text: bytes) -> int:
        free.wait(10)
        return original(self, text)

    monkeypatch.setattr(LogFile, "_append", append)
    before = ERRORS.values.get(("log",), 0)

    async def write() -> int:
        file = LogFile(path)
        file.write(b"a" * 149 + b"\n")  # a single line may be of any size
        for _ in range(3):
            file.write(b"b" * 9 + b"\n")
        assert file.dropped == 3
        free.set()
        async with asyncio.timeout(10):
            while file._done < file._taken:
                await asyncio.sleep(0.005)
        for _ in range(12):
            file.write(b"c" * 9 + b"\n")
        file.close()
        return file.dropped

    dropped = asyncio.run(write())
    kept = path.read_bytes().splitlines()
    assert kept[0] == b"a" * 149 and set(kept[1:]) == {b"c" * 9} and dropped == 3 + 12 - len(kept[1:])
    assert ERRORS.values.get(("log",), 0) - before == dropped and len(kept) >= 11


def test_a_large_line_is_handed_over_at_once(tmp_path: Path) -> None:
    async def write() -> bool:
        file = LogFile(tmp_path / "audit.log")
        file.write(bytes(audit_log.BATCH_BYTES) + b"\n")
        waits = file._timer is not None or bool(file._pending)
        file.close()
        return waits

    assert asyncio.run(write()) is False
    assert (tmp_path / "audit.log").stat().st_size == audit_log.BATCH_BYTES + 1


@pytest.mark.parametrize(
    ("micros", "written"), [(0, ".000000Z"), (1, ".000001Z"), (100_000, ".100000Z"), (999_999, ".999999Z")]
)
def test_times_have_six_digits_whatever_the_moment(micros: int, written: str) -> None:
    lines: list[bytes] = []

    class Kept:
        def write(self, line: bytes, user: bytes = b"") -> None:
            lines.append(line)

    clock = FakeClock(datetime(2026, 1, 1, 12, 30, 59, micros, UTC))
    note = Auditor(policy({"level": "Metadata"}), [Kept()], clock).begin(attributes("get", "pods"), "id", "/", [], "")
    assert note is not None
    note.stage("ResponseComplete", 200)
    assert [json.loads(line)["stage"] for line in lines] == ["RequestReceived", "ResponseComplete"]
    for line in lines:
        found = json.loads(line)
        assert found["stageTimestamp"] == found["requestReceivedTimestamp"] == f"2026-01-01T12:30:59{written}"


def test_users_are_written_as_they_are_however_many_there_are() -> None:
    lines: list[bytes] = []

    class Kept:
        def write(self, line: bytes, user: bytes = b"") -> None:
            lines.append(line)

    auditor = Auditor(policy({"level": "Metadata"}, omitStages=["RequestReceived"]), [Kept()], FakeClock())
    names = [f"user-{number}" for number in range(MOST_USERS + 10)] * 2
    for name in names:
        note = auditor.begin(AuthzAttributes(user=UserInfo(name, "u", ("g",)), verb="get", path="/"), "id", "/", [], "")
        assert note is not None
        note.stage("ResponseComplete", 200)
    assert [json.loads(line)["user"] for line in lines] == [{"username": n, "uid": "u", "groups": ["g"]} for n in names]
    assert len(auditor._users) <= MOST_USERS
    known = dict(auditor._users)
    groups = tuple(f"group-{number}" for number in range(LONGEST_USER // 8))
    for long in (UserInfo("ann", "u", groups), UserInfo("ann", "u", (), {"scopes": groups})):
        assert auditor.begin(AuthzAttributes(user=long, verb="get", path="/"), "id", "/", [], "") is not None
    assert auditor._users == known, "what is written of a user is as long as the provider of identities has it"


def test_a_long_user_agent_is_shown_as_upstream_shows_it() -> None:
    assert shown_agent("a" * LONGEST_AGENT) == "a" * 1024
    assert shown_agent("a" * (LONGEST_AGENT + 1)) == "a" * 1024 + "...TRUNCATED"
    note = Auditor(policy({"level": "Metadata"}), [], FakeClock()).begin(
        attributes("get", "pods"), "", "/", [], "a" * 2000
    )
    assert note is not None and len(note.event.user_agent) == 1024 + len("...TRUNCATED")


def test_message_details_and_annotations_of_an_event_have_a_limit() -> None:
    lines = list[bytes]()

    class Kept:
        def write(self, line: bytes, user: bytes = b"") -> None:
            lines.append(line)

    found = Auditor(policy({"level": "Metadata"}), [Kept()], FakeClock()).begin(
        attributes("get", "pods"), "id", "/", [], ""
    )
    assert found is not None
    found.decided(allowed=False, reason="why" * 100_000)
    found.annotations |= {f"example.com/{n}": "x" * 1000 for n in range(1000)}
    causes = [{"reason": "R", "message": "m" * 1000, "field": "f"}] * 5000
    details = {"name": "n" * 100_000, "causes": causes}
    found.stage("ResponseComplete", 403, {"kind": "Status", "message": "m" * 1_000_000, "details": details})
    event = json.loads(lines[-1])
    assert len(lines[-1]) < 4 * LONGEST_MESSAGE
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["responseStatus"]["message"].endswith("...TRUNCATED")
    assert 0 < len(event["responseStatus"]["details"]["causes"]) < 100
