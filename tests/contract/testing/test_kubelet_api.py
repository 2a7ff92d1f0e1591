"""kubectl and Python clients against pods of simulated nodes: logs, exec, attach and port-forward."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest

from wherry.testing import AsyncCluster, AsyncExec, Cluster, ClusterError, Exec, Exit, Output, Run
from wherry.testing.nodes.exec_calls import Result

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as found:
        found.pods.script("web-*", [Exit(1, logs="first\n"), Run(logs="one\ntwo\nthree\n")])
        found.pods.script("plain-*", Run())
        found.apply([pod("web-0"), pod("plain-0")])
        found.wait("pod/web-0", "Ready")
        found.wait("pod/plain-0", "Ready")
        found.pods.on_exec("web-*", command)
        found.pods.on_port("web-*", 8080, hello)
        found.pods.on_port("web-*", 9090, upper)
        yield found


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "x"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def command(call: Exec) -> Result:
    if call.command[0] == "cat":
        return call.stdin.read()
    if call.command[0] == "first-line":
        return call.stdin.readline()
    if call.command[0] == "each":
        for number, line in enumerate(call.stdin):
            print(f"{number}: {line.decode().strip()}", file=call.stdout)
        return 0
    if call.command[0] == "fail":
        return Output("out\n", "err\n", exit_code=3)
    if call.command[0] == "raise":
        raise ValueError("no such table")
    return " ".join(call.command) + "\n"


def hello(reader: Any, writer: Any) -> None:
    while reader.readline().strip():
        pass
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data.upper())
        await writer.drain()


def argv(cluster: Cluster, *arguments: str) -> list[str]:
    return ["kubectl", f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cluster.kubeconfig.parent}", *arguments]


def kubectl(cluster: Cluster, *arguments: str, input: str = "") -> tuple[int, str, str]:
    done = subprocess.run(argv(cluster, *arguments), input=input, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def started(cluster: Cluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(argv(cluster, *arguments), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_kubectl_shows_the_logs_of_the_script_and_those_of_the_instance_before(cluster: Cluster) -> None:
    assert kubectl(cluster, "logs", "web-0") == (0, "one\ntwo\nthree\n", "")
    assert kubectl(cluster, "logs", "web-0", "--previous")[1] == "first\n"
    assert kubectl(cluster, "logs", "web-0", "--tail=2")[1] == "two\nthree\n"
    assert kubectl(cluster, "logs", "web-0", "--since-time=2100-01-01T00:00:00Z")[1] == ""
    stamped = kubectl(cluster, "logs", "web-0", "--timestamps", "--tail=1")[1]
    assert stamped.startswith("20") and stamped.endswith("Z three\n")
    assert kubectl(cluster, "logs", "plain-0", "--previous")[2].startswith("Error from server (BadRequest): previous")


def test_followed_logs_have_lines_that_are_added_later_and_end_with_the_container(cluster: Cluster) -> None:
    cluster.apply(pod("plain-1", restartPolicy="Never"))
    cluster.wait("pod/plain-1", "Ready")
    cluster.pods.log("plain-1", "begin")
    with started(cluster, "logs", "-f", "plain-1") as process:
        assert process.stdout is not None and process.stdout.readline() == "begin\n"
        cluster.pods.log("plain-1", "more\nand more\n", stream="stderr")
        assert [process.stdout.readline() for _ in range(2)] == ["more\n", "and more\n"]
        cluster.pods.kill("plain-1", code=0)
        assert process.wait(30) == 0
    with pytest.raises(ClusterError, match="does not run"):
        cluster.pods.log("plain-1", "too late")


def test_followed_logs_end_with_the_power_of_the_node_which_cannot_be_reached_then(cluster: Cluster) -> None:
    node = cluster.add_node("weak")
    cluster.apply(pod("plain-2", nodeName="weak"))
    cluster.wait("pod/plain-2", "Ready")
    cluster.pods.log("plain-2", "begin")
    with started(cluster, "logs", "-f", "plain-2") as process:
        assert process.stdout is not None and process.stdout.readline() == "begin\n"
        node.fail()
        process.wait(30)
    code, _, problem = kubectl(cluster, "logs", "plain-2")
    assert code == 1 and "error dialing backend" in problem and "no route to host" in problem


def test_kubectl_runs_commands_by_the_handler_with_input_outputs_and_exit_code(cluster: Cluster) -> None:
    assert kubectl(cluster, "exec", "web-0", "--", "ls", "-l") == (0, "ls -l\n", "")
    assert kubectl(cluster, "exec", "-i", "web-0", "--", "cat", input="x" * 1_000_000)[1] == "x" * 1_000_000
    assert kubectl(cluster, "exec", "-i", "web-0", "--", "each", input="a\nb\n")[1] == "0: a\n1: b\n"
    code, out, problem = kubectl(cluster, "exec", "web-0", "--", "fail")
    assert (code, out) == (3, "out\n") and problem.startswith("err\n")
    code, _, problem = kubectl(cluster, "exec", "web-0", "--", "raise")
    assert code == 1 and "ValueError: no such table" in problem


def test_without_a_handler_the_error_names_what_adds_one(cluster: Cluster) -> None:
    code, _, problem = kubectl(cluster, "exec", "plain-0", "--", "ls")
    assert code == 1 and 'add one with cluster.pods.on_exec("plain-0", handler)' in problem
    with started(cluster, "port-forward", "plain-0", ":8080") as process:
        connect(process).close()
        assert process.stderr is not None
        assert 'cluster.pods.on_port(\\"plain-0\\", 8080, handler)' in process.stderr.readline()


@pytest.mark.parametrize("handler", [None, 7, ("127.0.0.1",), ("192.0.2.1", 80), ("127.0.0.1", 0)])
def test_what_is_no_handler_is_refused(cluster: Cluster, handler: Any) -> None:
    with pytest.raises(ClusterError):
        cluster.pods.on_port("web-*", 1, handler)


def test_attached_clients_see_what_is_added_to_the_log_or_are_served_by_a_handler(cluster: Cluster) -> None:
    cluster.apply(pod("plain-3", restartPolicy="Never"))
    cluster.wait("pod/plain-3", "Ready")
    with started(cluster, "attach", "plain-3") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stderr.readline()  # "If you don't see a command prompt": the session is open
        adding = threading.Event()

        def add() -> None:
            while not adding.wait(0.05):
                cluster.pods.log("plain-3", "tick")

        thread = threading.Thread(target=add)
        thread.start()
        assert process.stdout.readline() == "tick\n"
        adding.set()
        thread.join()
        cluster.pods.kill("plain-3", code=0)
        assert process.wait(30) == 0
    cluster.pods.on_attach("plain-0", lambda call: b"said " + call.stdin.readline())
    assert kubectl(cluster, "attach", "-i", "plain-0", input="hi\n")[1] == "said hi\n"


def connect(process: subprocess.Popen[str]) -> socket.socket:
    """Connect to the first port that kubectl forwards."""
    assert process.stdout is not None
    port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def test_kubectl_forwards_a_port_to_a_function_a_coroutine_function_and_a_server(cluster: Cluster) -> None:
    with started(cluster, "port-forward", "web-0", ":8080") as process, connect(process) as connection:
        address = f"http://127.0.0.1:{connection.getpeername()[1]}/"
        assert [urllib.request.urlopen(address, timeout=30).read() for _ in range(3)] == [b"hello"] * 3
    with started(cluster, "port-forward", "web-0", ":9090") as process, connect(process) as connection:
        connection.sendall(b"abc")
        assert connection.recv(10) == b"ABC"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(10) == b""
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster.pods.on_port("web-*", 7070, ("127.0.0.1", server.getsockname()[1]))
        with started(cluster, "port-forward", "web-0", ":7070") as process, connect(process) as connection:
            connection.sendall(b"in")
            accepted = server.accept()[0]
            with accepted:
                assert accepted.recv(10) == b"in"
                accepted.sendall(b"out")
            assert connection.recv(10) == b"out"


def test_the_python_client_reads_logs_runs_commands_and_forwards_ports(cluster: Cluster) -> None:
    from kubernetes import client, config
    from kubernetes.stream import portforward, stream

    def core() -> Any:
        return client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))  # type: ignore[no-untyped-call]

    assert core().read_namespaced_pod_log("web-0", "default", tail_lines=2) == "two\nthree\n"
    call, wanted = core().connect_get_namespaced_pod_exec, {"stdout": True, "stderr": True, "_preload_content": False}
    done = stream(call, "web-0", "default", command=["fail"], **wanted)
    done.run_forever(timeout=30)
    assert (done.read_stdout(), done.read_stderr(), done.returncode) == ("out\n", "err\n", 3)
    done = stream(
        core().connect_get_namespaced_pod_exec, "web-0", "default", command=["first-line"], stdin=True, **wanted
    )
    done.write_stdin("hi\n")
    done.run_forever(timeout=30)
    assert (done.read_stdout(), done.returncode) == ("hi\n", 0)
    forward = portforward(core().connect_get_namespaced_pod_portforward, "web-0", "default", ports="9090")
    with contextlib.closing(forward.socket(9090)) as connection:
        connection.sendall(b"abc")
        assert connection.recv(10) == b"ABC"


@pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")
def test_kr8s_reads_logs_runs_commands_and_forwards_ports(cluster: Cluster) -> None:
    import kr8s
    from kr8s.objects import Pod

    found = Pod.get("web-0", api=kr8s.api(kubeconfig=str(cluster.kubeconfig)))
    assert list(found.logs(tail_lines=1)) == ["three"]
    done = found.exec(["fail"], check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 3)
    with found.portforward(9090) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"abc")
        assert connection.recv(10) == b"ABC"


def test_lightkube_reads_logs_and_runs_commands(cluster: Cluster) -> None:
    from lightkube import Client, KubeConfig

    found = Client(KubeConfig.from_file(str(cluster.kubeconfig)))
    assert list(found.log("web-0", tail_lines=1)) == ["three\n"]
    done = found.exec("web-0", command=["fail"], stdout=True, stderr=True)
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 3)
    assert found.exec("web-0", command="cat", stdin=BytesIO(b"in"), stdout=True).stdout == "in"


def test_a_handler_in_a_thread_uses_the_cluster_and_a_restored_snapshot_has_the_handlers_of_its_time() -> None:
    with Cluster() as cluster:
        before = cluster.snapshot()
        cluster.pods.on_exec("web-*", lambda call: cluster.get(f"pod/{call.pod}")["metadata"]["name"])
        cluster.apply(pod("web-0"))
        cluster.wait("pod/web-0", "Ready")
        assert kubectl(cluster, "exec", "web-0", "--", "x")[1] == "web-0"
        before.restore()
        cluster.apply(pod("web-0"))
        cluster.wait("pod/web-0", "Ready")
        assert "no handler" in kubectl(cluster, "exec", "web-0", "--", "x")[2]


async def test_coroutine_functions_run_on_the_event_loop_of_an_async_cluster_whose_end_ends_sessions() -> None:
    cancelled = asyncio.Event()

    async def wait(call: AsyncExec) -> int:
        await call.stdout.write("begun\n")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0

    async with AsyncCluster() as cluster:
        cluster.pods.on_exec("web-*", wait)
        await cluster.apply(pod("web-0"))
        await cluster.wait("pod/web-0", "Ready")
        arguments = [f"--kubeconfig={cluster.kubeconfig}", "exec", "web-0", "--", "x"]
        process = await asyncio.create_subprocess_exec("kubectl", *arguments, stdout=subprocess.PIPE)
        assert process.stdout is not None and await process.stdout.readline() == b"begun\n"
    assert cancelled.is_set()
    async with asyncio.timeout(30):
        await process.wait()
