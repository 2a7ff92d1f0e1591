"""Admission and scheduling of a large pod cost time in proportion to the pod.

The event loop does it for each pod that is created: every admission plugin that looks at pods, in a namespace where each of
them has something to do, and what the scheduler works out of a pod before it compares it with nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from control.admission import plugins
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.auth.rbac import RBACAuthorizer
from control.scheduler.podinfo import PodInfo
from kube import bounded_cache, serialize
from kube.api import core_v1
from kube.errors import StatusError
from tests.support.lookup import Objects, attributes
from tests.unit.cost.test_large_objects import COUNTS, STEEPEST, Steps, counted
from tests.unit.cost.test_large_pods import LARGE

PREFIX = "pod-security.kubernetes.io/"
OUTSIDE = {"EventRateLimit", "ImagePolicyWebhook"}
"""Plugins that have nothing to do without a configuration."""
HARD = {"pods": "9999", "requests.cpu": "9999", "limits.memory": "9999Gi", "requests.example.org/r1": "9999"}
BOUNDS = {"cpu": "9999", "memory": "9999Gi", "example.org/r1": "9999"}


def namespace() -> Objects:
    """Return a namespace in which every plugin has something to do."""
    labels = {f"{PREFIX}{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    there = {"namespace": "default"}
    return Objects(
        ("namespaces", {"metadata": {"name": "default", "labels": labels}}),
        ("serviceaccounts", {"metadata": {"name": "default", **there}}),
        (
            "limitranges",
            {
                "metadata": {"name": "l", **there},
                "spec": {
                    "limits": [
                        {"type": "Pod", "max": BOUNDS, "maxLimitRequestRatio": {"cpu": "2"}},
                        {"type": "Container", "max": BOUNDS, "default": {"cpu": "1", "memory": "1Mi"}},
                    ]
                },
            },
        ),
        (
            "resourcequotas",
            {
                "metadata": {"name": "q", **there},
                "spec": {"hard": HARD, "scopes": ["NotTerminating", "NotBestEffort"]},
                "status": {"hard": HARD, "used": dict.fromkeys(HARD, "0")},
            },
        ),
    )


def admitted(pod: dict[str, Any]) -> None:
    """Show a pod to all plugins, each of which may refuse it."""
    objects = namespace()
    rbac = RBACAuthorizer()
    around = plugins.PluginContext(objects, rbac, rbac, WebhookInvoker(objects, Caller(objects), rbac))
    asked = attributes("pods", obj=pod)

    async def all_plugins() -> None:
        for plugin in plugins.make(around, plugins.OFF_BY_DEFAULT - OUTSIDE):
            for work in (plugin.admit, plugin.validate):
                try:
                    if plugin.handles(asked):
                        await work(asked)
                except StatusError as error:
                    assert 400 <= error.code < 500

    asyncio.run(all_plugins())


def placed(pod: core_v1.Pod) -> None:
    """Work out of a pod what the scheduler needs."""
    PodInfo(pod).prepare()


def steps(make: Callable[[int], core_v1.Pod], count: int) -> int:
    bounded_cache.forget_all()  # else a part of what a longer list has was computed for a shorter one
    plain = msgspec.to_builtins(make(count), enc_hook=str)
    as_sent, waiting = counted(plain), serialize.convert(plain, core_v1.Pod)
    with Steps() as lines:
        admitted(as_sent)
        placed(waiting)
    return lines.count


@pytest.mark.parametrize("field", LARGE)
def test_letting_a_pod_in_and_placing_it_is_linear_in_each_of_its_lists_and_maps(field: str) -> None:
    make = LARGE[field]
    steps(make, 2)  # what is made once and kept does not count
    few, more, many = (steps(make, count) for count in COUNTS)
    bend = (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) if few < more < many else 0.0
    assert bend < STEEPEST
