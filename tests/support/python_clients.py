"""Streams of a pod through three Python clients, in a process on the cluster's machine.

python -m tests.support.python_clients KUBECONFIG NAMESPACE POD: commands with input, output and status, logs that are followed,
forwarded ports. The pod serves HTTP on port 80.
"""

from __future__ import annotations

import faulthandler
import http.client
import sys
from typing import Any

import kr8s
from kr8s.objects import Pod as Kr8sPod
from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Pod as LightPod

SCRIPT = ["sh", "-c", 'read line; echo "out $line"; echo "err $line" >&2; exit 3']
REQUEST = b"GET /index.html HTTP/1.0\r\n\r\n"


def with_kubernetes(kubeconfig: str, namespace: str, pod: str) -> None:
    core = client.CoreV1Api(config.new_client_from_config(kubeconfig))
    options = {"stderr": True, "stdin": False, "stdout": True, "tty": False}
    said = stream(core.connect_get_namespaced_pod_exec, pod, namespace, command=["echo", "hello"], **options)
    assert said == "hello\n", said
    options |= {"stdin": True, "_preload_content": False}
    channel = stream(core.connect_get_namespaced_pod_exec, pod, namespace, command=SCRIPT, **options)
    channel.write_stdin("line\n")
    channel.run_forever(timeout=60)
    assert (channel.read_stdout(), channel.read_stderr(), channel.returncode) == ("out line\n", "err line\n", 3)
    forward = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports="80")
    connection = forward.socket(80)
    connection.setblocking(True)
    connection.sendall(REQUEST)
    answer = b""
    while part := connection.recv(4096):
        answer += part
    connection.close()
    assert answer.startswith(b"HTTP/1.0 200") or answer.startswith(b"HTTP/1.1 200"), answer
    assert pod.encode() in answer and forward.error(80) is None, (answer, forward.error(80))
    lines = watch.Watch()
    for line in lines.stream(core.read_namespaced_pod_log, pod, namespace, follow=True):
        assert "response:200" in line or "url:/index.html" in line, line
        lines.stop()
    assert core.read_namespaced_pod_log(pod, namespace, tail_lines=1)


def with_kr8s(kubeconfig: str, namespace: str, name: str) -> None:
    api: Any = kr8s.api(kubeconfig=kubeconfig)
    pod = Kr8sPod.get(name, namespace=namespace, api=api)
    pod.wait("condition=Ready", timeout=60)
    done = pod.exec(["echo", "hello"])
    assert (done.stdout, done.returncode) == (b"hello\n", 0)
    # It offers v4.channel.k8s.io alone, over which it sends no input.
    failed = pod.exec(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (failed.stdout, failed.stderr, failed.returncode) == (b"out\n", b"err\n", 3), failed
    assert any(pod.logs(tail_lines=1))
    with pod.portforward(80, local_port="auto") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/index.html")
        assert name.encode() in connection.getresponse().read()


def with_lightkube(kubeconfig: str, namespace: str, name: str) -> None:
    with Client(config=KubeConfig.from_file(kubeconfig), namespace=namespace) as light:
        ready = light.wait(LightPod, name, for_conditions=["Ready"])
        assert ready.status is not None and ready.status.podIP
        assert next(iter(light.log(name, tail_lines=1)))
        # Last: httpx2 closes a WebSocket's file descriptor while a thread still reads it, and the thread then takes
        # bytes of the next connection. Shown with aiohttp as the server.
        done: Any = light.exec(name, command=["echo", "hello"], stdout=True)
        assert done.stdout in ("hello\n", b"hello\n"), done


if __name__ == "__main__":
    faulthandler.dump_traceback_later(90, exit=True)
    for work in (with_kubernetes, with_kr8s, with_lightkube):
        work(*sys.argv[1:])
        print(work.__name__, flush=True)
