"""allocated_pods_state and actuated_pods_state, with checksums that upstream's own package computed."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.kubelet_configuration import ConfigError
from agent.managers import state_files
from agent.pods.allocation import Size, as_allocated
from agent.pods.resource_state import ACTUATED, ALLOCATED, PodResourceStates, refusal
from kube.api import core_v1
from tests.unit.agent.pods import pod

DATA = (
    '{"entries":{"o":{"ContainerResources":null,"PodLevelResources":{"limits":{"cpu":"2"}}},"p":{"ContainerResources":'
    r'{"b\u003c\u0026\u003e":{"claims":[{"name":"x"}]},"c":{"limits":{"cpu":"1500m","memory":"128Mi"},'
    '"requests":{"cpu":"1"}}},"PodLevelResources":null}}}'
)


def size(cpu: str) -> core_v1.ResourceRequirements:
    return core_v1.ResourceRequirements(requests={"cpu": cpu})


@pytest.mark.parametrize("name", [ALLOCATED, ACTUATED])
def test_what_upstream_wrote_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"data": DATA, "checksum": 2059185192}))
    found = PodResourceStates(tmp_path)
    state = found.allocated if name == ALLOCATED else found.actuated
    p = state.of("p")
    assert p is not None and p.together is None and p.containers["c"].limits == {"cpu": "1500m", "memory": "128Mi"}
    assert [claim.name for claim in p.containers["b<&>"].claims] == ["x"]
    assert state.of("o") == Size({}, core_v1.ResourceRequirements(limits={"cpu": "2"})) and state.of("none") is None


def test_nothing_is_read_where_upstream_had_nothing(tmp_path: Path) -> None:
    (tmp_path / ALLOCATED).write_text(json.dumps({"data": "{}", "checksum": 694314937}))
    assert PodResourceStates(tmp_path).allocated.of("p") is None


@pytest.mark.parametrize("name", [ALLOCATED, ACTUATED])
@pytest.mark.parametrize(
    "content",
    [
        {"data": DATA, "checksum": 1},
        {"data": DATA},
        {"data": "[]", "checksum": state_files.checksum("(string)[]")},
        {},
        [],
        "x",
    ],
)
def test_a_damaged_file_is_named_with_what_is_to_be_done(tmp_path: Path, name: str, content: Any) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError) as raised:
        PodResourceStates(tmp_path)
    assert f'pod resource information checkpoint file "{tmp_path / name}"' in str(raised.value)
    assert "please drain this node and delete" in str(raised.value)


async def test_the_next_agent_knows_what_was_noted(tmp_path: Path) -> None:
    state = PodResourceStates(tmp_path).actuated
    noted = Size({"a": size("1"), "b": core_v1.ResourceRequirements()}, size("3"))
    state.put("u", noted)
    await state.save("u")
    again = PodResourceStates(tmp_path)
    assert again.actuated.of("u") == noted
    again.keep({"v"})
    assert again.actuated.of("u") is None


async def test_pods_without_sizes_are_not_written_and_those_that_are_gone_go_with_the_next_note(tmp_path: Path) -> None:
    state = PodResourceStates(tmp_path).allocated
    state.put("small", Size({"a": core_v1.ResourceRequirements()}))
    await state.save("small")
    assert not (tmp_path / ALLOCATED).exists()
    state.put("u", Size({"a": size("1")}))
    state.put("v", Size({"a": size("1")}))
    await state.save("v")
    before = (tmp_path / ALLOCATED).stat().st_ino
    state.put("v", Size({"a": size("1")}))
    state.forget("u")
    await state.save("v")
    assert (tmp_path / ALLOCATED).stat().st_ino == before
    state.put("v", Size({"a": size("2")}))
    await state.save("v")
    data = json.loads(json.loads((tmp_path / ALLOCATED).read_text())["data"])
    assert data["entries"].keys() == {"v"}


async def test_notes_of_many_pods_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, written, write = PodResourceStates(tmp_path).actuated, list[Path](), state_files.write

    def counted(path: Path, content: Any) -> None:
        written.append(path)
        write(path, content)

    monkeypatch.setattr(state_files, "write", counted)

    async def note(number: int) -> None:
        state.put(f"u{number}", Size({"a": size("1")}))
        await state.save(f"u{number}")
        assert f"u{number}" in (tmp_path / ACTUATED).read_text()

    await asyncio.gather(*(note(number) for number in range(100)))
    assert len(written) <= 3


async def test_what_cannot_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = PodResourceStates(tmp_path)

    def fail(path: Path, content: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(state_files, "write", fail)
        state.actuated.put("u", Size({"a": size("1")}))
        for _ in range(3):
            await state.actuated.try_save("u")
        assert caplog.text.count("actuated_pods_state: [Errno 28] No space left on device") == 1, "each sync tries"
        with pytest.raises(OSError, match="No space left on device"):
            await state.actuated.save("u")
    assert not (tmp_path / ACTUATED).exists()
    await state.retry()
    assert PodResourceStates(tmp_path).actuated.of("u") == Size({"a": size("1")})


async def test_a_pod_waits_for_the_write_of_its_own_size_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, free, write = PodResourceStates(tmp_path).allocated, threading.Event(), state_files.write
    state.put("saved", Size({"a": size("1")}))
    await state.save("saved")

    def hung(path: Path, content: Any) -> None:
        assert free.wait(30)
        write(path, content)

    monkeypatch.setattr(state_files, "write", hung)
    state.put("first", Size({"a": size("1")}))
    first = asyncio.create_task(state.save("first"))
    try:
        await asyncio.sleep(0)
        await asyncio.wait_for(state.save("saved"), 10)
        second = asyncio.create_task(state.save("first"))
        done, _ = await asyncio.wait({first, second}, timeout=0.05)
        assert not done, "who comes while it is being written waits too"
    finally:
        free.set()
        await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(second, 10)
    assert PodResourceStates(tmp_path).allocated.of("first") == Size({"a": size("1")})


def test_a_pod_begins_in_the_size_that_the_last_agent_granted_it() -> None:
    wanted = pod({"name": "main", "resources": {"requests": {"cpu": "2"}}})
    assert as_allocated(wanted, None) is wanted and as_allocated(wanted, Size({"main": size("2")})) is wanted
    found = as_allocated(wanted, Size({"main": size("1")}))
    assert found.spec.containers[0].resources == size("1")
    assert as_allocated(wanted, Size({"main": size("2")}, size("5"))).spec.resources == size("5")


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The thread and the number of bytes of each checksum."""
    found, real = list[tuple[str, int]](), state_files.checksum

    def counted(printed: str | bytes, value: int = 0x811C9DC5) -> int:
        found.append((threading.current_thread().name, len(printed)))
        return real(printed, value)

    monkeypatch.setattr(state_files, "checksum", counted)
    return found


async def test_the_checksum_is_made_beside_the_loop_and_only_of_what_changed(
    tmp_path: Path, summed: list[tuple[str, int]]
) -> None:
    state = PodResourceStates(tmp_path).allocated
    for number in range(100):
        state.put(f"u{number}", Size({f"c{k}": size("1") for k in range(100)}))
    await state.save("u0")
    file = tmp_path / ALLOCATED
    assert sum(length for _, length in summed) > 300_000
    for uid in ("u0", "u7", "new", "u0"):
        summed.clear()
        before = state.of(uid) or Size({})
        state.put(uid, Size({"c": size(str(len(before.containers) + 2))}))
        if uid == "u7":
            continue
        await state.save(uid)
    assert 0 < sum(length for _, length in summed) < 1000
    assert threading.current_thread().name not in {name for name, _ in summed}
    for gone in ("new", "u50"):
        state.forget(gone)
        state.put("u99", Size({"c": size(gone.removeprefix("u").replace("new", "3"))}))
        await state.save("u99")
        again = PodResourceStates(tmp_path).allocated  # which holds the checksum against the whole
        assert again._pods == state._pods and len(again._pods) == 100 - (gone == "u50")
    assert list(json.loads(json.loads(file.read_text())["data"])["entries"])[-1] == "u99"


async def test_a_note_of_a_pod_has_a_bound(tmp_path: Path) -> None:
    names: dict[str, str | int | float] = {f"x.io/a{number:05d}": "0" for number in range(16_000)}
    large = core_v1.ResourceRequirements(requests=names, limits=names)
    state = PodResourceStates(tmp_path).allocated
    state.put("small", Size({"c": size("1")}))
    state.put("large", Size({"c": large}))
    await state.save("small")
    assert (tmp_path / ALLOCATED).stat().st_size < 1000 and state.of("large") is None
    state.put("small", Size({"c": large}))
    assert state.of("small") is None
    assert "are allowed" in refusal("u", Size({"c": large})) and "are allowed" in refusal("u", Size({}, large))
    assert refusal("u", Size({f"c{number}": size("1") for number in range(300)})) == ""
