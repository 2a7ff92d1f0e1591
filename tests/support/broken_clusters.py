"""Clusters with one fault each: `wherry why` names its cause, and its fix, run as a person would, mends it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wherry.testing import AsyncCluster
from wherry.why import report, story
from wherry.why.model import Story

Object = dict[str, Any]
LIMIT_SECONDS = 30.0
LOOK_SECONDS = 0.05
PROBE = {"periodSeconds": 1, "failureThreshold": 1}
"""Fields of a probe that soon fails."""
NO_CAUSES = "no causes"
"""Health of an object without a condition: nothing is wrong with it any more."""


@dataclass(frozen=True)
class Broken:
    """A fault. `cause` is a regular expression that the text of the cause matches, `fix` the command, or its beginning.

    filled: words of the command that a person fills in. edited: (old, new) texts that a person changes in the editor.
    healthy: condition of the object once the command has run, or NO_CAUSES; "" if the command only
    shows more, None if it cannot be run here.
    """

    ask: str
    cause: str
    fix: str
    objects: Sequence[Object] = ()
    filled: Mapping[str, str] = field(default_factory=dict)
    edited: tuple[str, str] | None = None
    healthy: str | None = "Ready"
    prepare: Callable[[AsyncCluster], Awaitable[None]] | None = None
    after: Callable[[AsyncCluster], Awaitable[None]] | None = None
    namespace: str = "default"
    seconds: float = 0.0
    """Virtual seconds that pass before each look; 0: the cluster's time is real."""


def container(name: str = "app", image: str = "registry.test/app:1", **fields: Any) -> Object:
    return {"name": name, "image": image, **fields}


def pod(name: str = "web", *, spec: Object | None = None, **fields: Any) -> Object:
    """Return a pod of one container with the given fields."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container(**fields)], "terminationGracePeriodSeconds": 0, **(spec or {})},
    }


def workload(
    kind: str, name: str = "web", *, spec: Object | None = None, pod_spec: Object | None = None, **fields: Any
) -> Object:
    """Return a Deployment, StatefulSet or DaemonSet whose pods have one container with the given fields."""
    labels = {"app": name}
    inner = {"containers": [container(**fields)], "terminationGracePeriodSeconds": 0, **(pod_spec or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": inner},
            **(spec or {}),
        },
    }


async def story_of(cluster: AsyncCluster, ask: str, namespace: str = "default", source: str = "") -> Story:
    """Return the story of an object (KIND/NAME) of a cluster."""
    kind, _, name = ask.partition("/")
    return await story.compose(cluster.client, kind, name, namespace, cluster.now, source=source)


async def mended(case: Broken, nodes: int = 1) -> None:
    """Check a case on a cluster of its own."""
    async with AsyncCluster(nodes, time="virtual" if case.seconds else "real") as cluster:
        await check(cluster, case)


async def check(cluster: AsyncCluster, case: Broken) -> None:
    """Break a cluster, ask for the cause, run the fix and wait until the object is healthy."""
    if case.prepare is not None:
        await case.prepare(cluster)
    await cluster.apply(list(case.objects), namespace=case.namespace)
    if case.after is not None:
        await case.after(cluster)
    found = await _named(cluster, case)
    cause = found.causes[-1]
    assert cause.fix.startswith(case.fix), f"the fix is {cause.fix!r}"
    last = report.lines(found)[-2:]
    assert last[0].startswith("cause: ") and last[-1].startswith("fix: "), last
    if case.healthy is not None:
        await run(cluster, cause.fix, case)
    if case.healthy == NO_CAUSES:
        await _without_causes(cluster, case)
    elif case.healthy:
        await cluster.wait(case.ask, case.healthy, namespace=case.namespace)


async def _named(cluster: AsyncCluster, case: Broken) -> Story:
    """Return the story as soon as its cause is the one of the case; fails with the last one."""
    found = None
    for _ in range(int(LIMIT_SECONDS / LOOK_SECONDS)):
        if case.seconds:
            await cluster.advance(seconds=case.seconds)
        found = await story_of(cluster, case.ask, case.namespace)
        if found.causes and re.search(case.cause, found.causes[-1].text):
            return found
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError(f"no cause matches {case.cause!r}:\n" + "\n".join(report.lines(found) if found else []))


async def _without_causes(cluster: AsyncCluster, case: Broken) -> None:
    found = None
    for _ in range(int(LIMIT_SECONDS / LOOK_SECONDS)):
        if case.seconds:
            await cluster.advance(seconds=case.seconds)
        found = await story_of(cluster, case.ask, case.namespace)
        if all(cause.partial for cause in found.causes):
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("it is not mended:\n" + "\n".join(report.lines(found) if found else []))


async def run(cluster: AsyncCluster, command: str, case: Broken) -> str:
    """Run a command as a person with a shell and an editor would, and return its output."""
    for word, value in case.filled.items():
        assert word in command, f"{word} is not in {command}"
        command = command.replace(word, value)
    variables = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    if case.edited is not None:
        old, new = case.edited
        variables["KUBE_EDITOR"] = shlex.join(["sed", "-i", "-e", f"s\x01{old}\x01{new}\x01"])
        script = Path(cluster.kubeconfig).parent / "edit.sed"
        script.write_text(f"s\x01{old}\x01{new}\x01\n")
        variables["EDITOR"] = f"sed -i -f {script}"  # a shell splits it at spaces alone
    folder = tempfile.TemporaryDirectory()
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        env=variables,
        cwd=folder.name,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LIMIT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        folder.cleanup()
    text = output.decode()
    assert process.returncode == 0, f"{command}: {text}"
    return text
