"""Cgroup metrics with cAdvisor's names: trees of both versions, written as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.cgroups.tree import Cgroups
from agent.interfaces import PodView
from agent.runtime_records import SandboxRecord
from agent.usage import cadvisor, cgroup_details, machine
from agent.usage.model import CPU, ContainerUse, Filesystem, Interface, Memory, NodeUse, PodUse, Snapshot
from kube.api import core_v1, meta_v1

V2 = {
    "cpu.stat": "user_usec 3000000\nsystem_usec 2000000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 500000\n",
    "memory.stat": "file 4096\nfile_mapped 1024\nkernel 2048\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
    "memory.swap.current": "10\n",
    "memory.peak": "9000\n",
    "memory.max": "max\n",
    "pids.current": "4\n",
    "pids.max": "100\n",
    "cpu.max": "50000 100000\n",
    "cpu.weight": "100\n",
    "io.stat": "259:9999 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=0 dios=0\n",
    "cgroup.procs": "",
}
V1 = {
    "cpuacct/{}/cpuacct.stat": "user 300\nsystem 200\n",
    "cpu/{}/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 500000000\n",
    "cpu/{}/cpu.shares": "1024\n",
    "cpu/{}/cpu.cfs_period_us": "100000\n",
    "cpu/{}/cpu.cfs_quota_us": "50000\n",
    "memory/{}/memory.stat": "cache 1\ntotal_cache 4096\ntotal_mapped_file 1024\ntotal_swap 10\n",
    "memory/{}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory/{}/memory.failcnt": "3\n",
    "memory/{}/memory.kmem.usage_in_bytes": "2048\n",
    "memory/{}/memory.max_usage_in_bytes": "9000\n",
    "memory/{}/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/{}/cgroup.procs": "",
    "pids/{}/pids.current": "4\n",
    "pids/{}/pids.max": "100\n",
    "blkio/{}/blkio.throttle.io_service_bytes_recursive": "259:9999 Read 100\n259:9999 Write 200\nTotal 300\n",
    "blkio/{}/blkio.throttle.io_serviced_recursive": "259:9999 Read 1\n259:9999 Write 2\nTotal 3\n",
}


def lay(mount: Path, path: str, v2: bool, processes: str = "") -> None:
    files = {f"{path}/{name}": text for name, text in V2.items()} if v2 else {n.format(path): t for n, t in V1.items()}
    for name, text in files.items():
        file = mount / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(processes if name.endswith("cgroup.procs") else text)
    if v2:
        (mount / "cgroup.controllers").write_text("cpu memory pids io\n")


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
def test_a_cgroup_has_the_same_statistics_in_both_versions(tmp_path: Path, v2: bool) -> None:
    lay(tmp_path, "kubepods/pod1/c1", v2)
    found = cgroup_details.read(tmp_path, "kubepods/pod1/c1", v2=v2)
    samples = found.samples
    assert samples["container_cpu_user_seconds_total"] == pytest.approx(3.0)
    assert samples["container_cpu_system_seconds_total"] == pytest.approx(2.0)
    assert samples["container_cpu_cfs_throttled_seconds_total"] == pytest.approx(0.5)
    wanted = {
        "container_cpu_cfs_periods_total": 7,
        "container_cpu_cfs_throttled_periods_total": 2,
        "container_memory_cache": 4096,
        "container_memory_mapped_file": 1024,
        "container_memory_kernel_usage": 2048,
        "container_memory_failcnt": 3,
        "container_memory_swap": 10,
        "container_memory_max_usage_bytes": 9000,
        "container_oom_events_total": 1,
        "container_threads": 4,
        "container_threads_max": 100,
        "container_spec_memory_limit_bytes": 0,
        "container_spec_cpu_period": 100000,
        "container_spec_cpu_quota": 50000,
    }
    assert {name: samples[name] for name in wanted} == wanted
    assert found.devices["259:9999"] == {
        "container_fs_reads_bytes_total": 100,
        "container_fs_writes_bytes_total": 200,
        "container_fs_reads_total": 1,
        "container_fs_writes_total": 2,
    }


def test_a_removed_cgroup_has_no_statistics(tmp_path: Path) -> None:
    assert cgroup_details.read(tmp_path, "gone", v2=True).samples == {}
    assert cgroup_details.read(tmp_path, "gone", v2=False).samples == {}


def test_series_are_labelled_by_pod_and_container(tmp_path: Path) -> None:
    cpu, memory = CPU(5.0, 2_000_000_000), Memory(5.0, 10, usage=20, rss=5, page_faults=3, major_page_faults=1)
    disk = Filesystem(5.0, 100, 50, 50, 10, 5, 5)
    one = ContainerUse("main", "c1", "busybox", 1.0, cpu, memory, 0, 7, 1, 0, 0)
    use = PodUse("web", "default", "u1", 1.0, (one,), cpu, memory, (Interface("eth0", 1, 2, 3, 4),), 1, ())
    snapshot = Snapshot(NodeUse("n", 1.0, cpu, memory, (), disk, disk, 1, 2), (use,))
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="web", namespace="default", uid="u1"))
    view = PodView(pod, (), SandboxRecord(id="s1", ready=True))
    for path in ("kubepods/besteffort/podu1", "kubepods/besteffort/podu1/s1", "kubepods/besteffort/podu1/c1"):
        lay(tmp_path, path, True, str(os.getpid()) if path.endswith("c1") else "")
    groups = cadvisor.gather(snapshot, {"u1": view}, Cgroups("/", "cgroupfs", mount=tmp_path))
    lines = cadvisor.text(groups, snapshot, None, 9.0, "/dev/sda1").splitlines()
    where = 'namespace="default",pod="web"'
    main = f'container="main",id="/kubepods/besteffort/podu1/c1",image="busybox",name="c1",{where}'
    sandbox = f'container="",id="/kubepods/besteffort/podu1/s1",image="",interface="eth0",name="s1",{where}'
    assert f"container_memory_working_set_bytes{{{main}}} 10 5000" in lines
    assert f"container_memory_cache{{{main}}} 4096" in lines
    assert f"container_processes{{{main}}} 1" in lines
    assert f"container_network_transmit_bytes_total{{{sandbox}}} 3" in lines
    assert f"container_network_receive_errors_total{{{sandbox}}} 2" in lines
    failures = main.replace('id="/', 'failure_type="pgfault",id="/').replace(where, f'{where},scope="hierarchy"')
    assert f"container_memory_failures_total{{{failures}}} 3 5000" in lines
    assert [line for line in lines if line.startswith("container_fs_limit_bytes")] == [
        'container_fs_limit_bytes{container="",device="/dev/sda1",id="/",image="",name="",namespace="",pod=""} 100'
    ]
    assert len({line.split("{")[0].split(" ")[0] for line in lines if line[0] != "#"}) > 40


@pytest.mark.parametrize("name", [b"x\xff", b"x\x1cy", b"x\xc2\x85y"])
def test_a_network_device_may_have_a_name_of_any_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    heads = b"Inter-|   Receive |  Transmit\n face |bytes packets ...\n"
    numbers = b" ".join(b"%d" % number for number in range(16))
    folder = tmp_path / "7" / "net"
    folder.mkdir(parents=True)
    (folder / "dev").write_bytes(heads + b"".join(b"%b: %b\n" % (one, numbers) for one in (b"lo", name, b"eth0")))
    route = b"Iface\tDestination\n%b\t0000F40A\neth0\t00000000\n" % name
    (folder / "route").write_bytes(route)
    monkeypatch.setattr(cgroup_details, "_PROC", tmp_path)
    shown = name.decode(errors="replace")
    assert cgroup_details.interfaces(7) == {key: [0, 1, 2, 3, 8, 9, 10, 11] for key in (shown, "eth0")}
    assert [found.name for found in machine.interfaces(tmp_path / "7")] == ["eth0", shown]
    assert cgroup_details.interfaces(8) == {}


def test_of_very_many_network_devices_the_first_are_reported(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    numbers = " ".join("1" * 16)
    lines = [f"d{number}: {numbers}\n" for number in range(2 * machine.MOST_DEVICES)]
    (tmp_path / "net/dev").write_text("Inter-|\n face |\n" + "".join(lines))
    assert len(machine.network_counters(tmp_path)) == machine.MOST_DEVICES


def test_of_a_container_of_many_open_files_the_first_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_details, "_PROC", tmp_path)
    monkeypatch.setattr(cgroup_details, "MOST_FILES", 50)
    for pid in (1, 2, 3):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        for number in range(30):
            (tmp_path / f"{pid}/fd/{number}").symlink_to(f"socket:[{number}]")
    looked: list[str] = []
    real = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: looked.append(path) or real(path))
    found = cgroup_details.Details(pids=[1, 2, 3])
    cgroup_details._processes(found)
    assert found.samples["container_file_descriptors"] == found.samples["container_sockets"] == len(looked) == 50
    assert found.samples["container_processes"] == 3
