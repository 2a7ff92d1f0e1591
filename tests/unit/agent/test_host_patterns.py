"""Patterns of registries' hosts: Go's rules, no cache of users' patterns, time that stays low."""

from __future__ import annotations

import base64
import json
import random
import time
import tracemalloc

import pytest

from agent.images import registry_auth
from agent.images.host_patterns import matches
from agent.images.pull_secrets import PullSecrets
from agent.images.registry_auth import LONGEST, MOST
from kube.api import core_v1, meta_v1


@pytest.mark.parametrize(
    ("pattern", "part", "wanted"),
    [
        # the cases of Go's path/filepath match_test.go that concern one part
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*", "abc", True),
        ("a*b*c*d*e*", "axbxcxdxe", True),
        ("a*b*c*d*e*", "axbxcxdxexxx", True),
        ("a*b?c*x", "abxbbxdbxebxczzx", True),
        ("a*b?c*x", "abxbbxdbxebxczzy", False),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^b-d]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "ab", False),
        ("a?b", "a☺b", True),
        ("a[^a]b", "a☺b", True),
        ("a???b", "a☺b", False),
        ("[a-ζ]*", "α", True),
        ("*[a-ζ]", "A", False),
        ("[\\]a]", "]", True),
        ("[\\-]", "-", True),
        ("[x\\-]", "x", True),
        ("[x\\-]", "z", False),
        ("[!a]", "!", True),
        ("*x", "xxx", True),
        # malformed
        ("[]a]", "]", False),
        ("[-]", "-", False),
        ("[x-]", "x", False),
        ("[-x]", "x", False),
        ("[a-b-c]", "a", False),
        ("[", "a", False),
        ("[^", "a", False),
        ("[^bc", "a", False),
        ("a[", "ab", False),
        ("\\", "a", False),
        ("", "", True),
        ("*", "", True),
        ("", "a", False),
    ],
)
def test_patterns_are_gos(pattern: str, part: str, wanted: bool) -> None:
    assert matches(part, pattern) is wanted


def _secret(number: int) -> core_v1.Secret:
    chosen = random.Random(number)
    sets = (
        "".join(chr(block * 256 + chosen.randrange(256)) for block in chosen.sample(range(1, 215), 8))
        for _ in range(24)
    )
    pattern = "".join(f"[{each}]" for each in sets)
    auths = {f"{pattern[:-4]}{entry:03}].io": {"auth": "YTpi"} for entry in range(MOST)}
    text = base64.b64encode(json.dumps({"auths": auths}, ensure_ascii=False).encode()).decode()
    return core_v1.Secret(
        metadata=meta_v1.ObjectMeta(name="s", namespace="n", uid=f"u{number}"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": text},
    )


def test_patterns_of_pull_secrets_leave_nothing_in_memory() -> None:
    PullSecrets().matching("docker.io/library/x:1", [_secret(0)])
    tracemalloc.start()
    try:
        for number in range(1, 4):
            PullSecrets().matching("docker.io/library/x:1", [_secret(number)])
        assert tracemalloc.get_traced_memory()[0] < 256 * 1024
    finally:
        tracemalloc.stop()


def test_the_most_expensive_patterns_take_little_time() -> None:
    for part in ("a" * 63, "a" * LONGEST):
        began = time.process_time()
        for pattern in ("*a" * 126 + "b", "*" + "a" * 31 + "b", "*" + "[^b]" * 31 + "b") * 20:
            assert not matches(part, pattern)
        assert time.process_time() - began < 0.5


def test_longer_addresses_are_refused() -> None:
    entries = {"a.io/" + "x" * (LONGEST - 5): {"username": "u"}, "a.io/" + "x" * (LONGEST - 4): {"username": "v"}}
    text = json.dumps({"auths": entries}).encode()
    assert [c.username for c in registry_auth.docker_config(text, registry_auth.Source("node"))] == ["u"]
