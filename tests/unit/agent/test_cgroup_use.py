"""Resource usage of a cgroup: the kernel's files, v1 and v2."""

from __future__ import annotations

from pathlib import Path

from agent.eviction.thresholds import thresholds
from agent.usage.cgroup import memory_of, read
from agent.usage.machine import memory

MI = 1 << 20


def files(folder: Path, **contents: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def v2(mount: Path, **changes: str) -> None:
    files(mount, cgroup__controllers="cpu memory pids")
    given = {
        "memory__current": str(100 * MI),
        "memory__max": str(400 * MI),
        "memory__stat": f"anon {60 * MI}\nfile {40 * MI}\ninactive_file {30 * MI}\npgfault 7\npgmajfault 2",
        "cpu__stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500",
        "pids__current": "12",
    }
    files(mount / "a/b", **(given | changes))


def test_the_working_set_is_what_is_charged_less_inactive_file_pages(tmp_path: Path) -> None:
    v2(tmp_path)
    found = read(tmp_path, "a/b", 5.0)
    assert found is not None
    assert (found.cpu.time, found.cpu.total, found.processes) == (5.0, 1_500_000, 12)
    assert (found.memory.usage, found.memory.working_set, found.memory.rss) == (100 * MI, 70 * MI, 60 * MI)
    assert (found.memory.available, found.memory.page_faults, found.memory.major_page_faults) == (330 * MI, 7, 2)


def test_without_a_limit_no_available_amount_is_reported(tmp_path: Path) -> None:
    v2(tmp_path, memory__max="max")
    found = memory_of(tmp_path, "a/b")
    assert found is not None and found.available is None


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    stat = f"inactive_file 1\ntotal_inactive_file {30 * MI}\ntotal_rss {60 * MI}\ntotal_pgfault 7\ntotal_pgmajfault 2"
    files(
        tmp_path / "memory/a/b",
        memory__usage_in_bytes=str(100 * MI),
        memory__limit_in_bytes=str(2**63 - 4096),
        memory__stat=stat,
    )
    files(tmp_path / "cpuacct/a/b", cpuacct__usage="1500000")
    files(tmp_path / "pids/a/b", pids__current="12")
    found = read(tmp_path, "a/b", 5.0)
    assert found is not None
    assert (found.cpu.total, found.processes) == (1_500_000, 12)
    assert (found.memory.working_set, found.memory.available, found.memory.page_faults) == (70 * MI, None, 7)


def test_a_cgroup_that_has_gone_is_nothing(tmp_path: Path) -> None:
    v2(tmp_path)
    assert read(tmp_path, "a/c", 0.0) is None


def test_the_machines_working_set_is_the_root_cgroups(tmp_path: Path) -> None:
    # MemFree and the kernel's own memory play no part.
    kilobytes = {"MemTotal": 1000, "MemFree": 5, "Buffers": 10, "Cached": 300, "SwapCached": 1, "AnonPages": 200}
    files(tmp_path, vmstat="pgfault 3\npgmajfault 1")
    lines = {**kilobytes, "Inactive(file)": 111, "Slab": 77}
    files(tmp_path, meminfo="\n".join(f"{name}: {number} kB" for name, number in lines.items()))
    found = memory(1.0, tmp_path)
    assert (found.usage, found.working_set, found.available) == (511 << 10, 400 << 10, 600 << 10)


def test_the_hard_threshold_of_memory_holds_for_what_all_pods_may_have_where_that_is_bounded() -> None:
    made = thresholds(
        {"memory.available": "10%", "pid.available": "5"},
        {"memory.available": "20%"},
        {"memory.available": 1.0},
        {"memory.available": "1%"},
        pods_bounded=True,
    )
    assert [(one.signal, one.amount, one.reclaim) for one in made if one.hard] == [
        ("memory.available", "10%", "1%"),
        ("pid.available", "5", "0"),
        ("allocatableMemory.available", "10%", "1%"),
    ]
    assert [one.signal for one in made if not one.hard] == ["memory.available"]
