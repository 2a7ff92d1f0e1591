"""Values of the API fuzz for requests: words that usually fit, words that seldom do, options, headers, JSON patches."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "default", "kubernetes", "system:node:a", "x" * 300, "..", "A_b", "%2f", "a b", "é", "kube-system")
ODD = """
    a b default fuzz Always None TCP 10.0.0.1 10.96.0.7 ::1 1.2.3.4/33 * / .. a/b 1 -1 0 1Gi 100m 1e3 50% nginx:1 example.com/a
    == a=b 2026-01-02T03:04:05Z 5s v1 apps/v1 Pod pods { object.spec YQ== metadata.name spec.nodeName=a All true 1e9999999
""".split()
WORDS = st.sampled_from(
    [*ODD, "", "a in (b", "*/5 * * * *", "self.a > 1", "\x00", "\ud7ff", "\U0001f600", "x" * 260, "9" * 40]
)
FITTING = """
    a b x default Always IfNotPresent TCP UDP 10.0.0.1 ::1 192.0.2.1 nginx:1 web v1 apps/v1 Pod pods example.com/a User
    example.com Secret get /x * RollingUpdate Equal NoSchedule Exists Gi kubernetes.io/hostname ClusterIP true
""".split()
GOOD = st.sampled_from([*FITTING, "object.metadata.name == 'a'", "*/5 * * * *"])
TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z", "1970-01-01T00:00:00Z"])
ENCODED = st.sampled_from(["", "YQ==", "AAECAw=="])
QUANTITIES = st.sampled_from(["1", "100m", "1Gi", "0", "1e3", "-1", ".5", "1500u"])
INT_OR_STRING = st.sampled_from([1, 80, "50%", "http", 0])
SMALL = st.one_of(st.integers(-2, 5), st.sampled_from([80, 443, 65535, 65536, 2**31 - 1, -(2**31)]))
LARGE = st.one_of(SMALL, SMALL, st.sampled_from([2**63 - 1, -(2**63)]))
NUMBERS = st.one_of(SMALL, st.sampled_from([2**31, 2**63, -(2**63), 10**30, 1.5]))
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=5,
)
BODY_TYPES = ("application/json",) * 5 + (
    *("application/yaml", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", ""),
)
NAMESPACE = st.sampled_from(("fuzz",) * 20 + ("default", "none", "..", "A_b"))
NAME = st.sampled_from(("a",) * 60 + ("b",) * 10 + NAMES)
PLACES = """
    / /metadata /metadata/labels /metadata/labels/a /metadata/labels/- /metadata/name /spec /spec/a /spec/containers/0
    /spec/containers/- /spec/containers/99 /spec/containers/0/image a /~2 /data /data/a /metadata/finalizers
    /metadata/finalizers/- /metadata/ownerReferences /kind /spec/ports
""".split()
POINTERS = st.sampled_from(["", *PLACES])
OPERATIONS = st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "test", "bad"])
OPERATION = st.fixed_dictionaries({"op": OPERATIONS, "path": POINTERS}, optional={"value": ANYTHING, "from": POINTERS})
JSON_PATCH = st.one_of(ANYTHING, st.lists(OPERATION, max_size=4))
ACCEPTED = """
    application/json application/yaml */* text/html application/vnd.kubernetes.protobuf ;;q=, application/cbor
    application/json;as=Table;v=v1;g=meta.k8s.io,application/json application/json;as=Table;v=v9;g=meta.k8s.io
    application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io application/json;stream=watch
    application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
""".split()
HEADERS = st.fixed_dictionaries(
    {}, optional={"Accept": st.sampled_from(ACCEPTED), "Accept-Encoding": st.sampled_from(["gzip", "identity", "br"])}
)
BY_TYPE: dict[str, st.SearchStrategy[str]] = {
    "string": WORDS,
    "boolean": st.sampled_from(["true", "false", "1", "0", "", "maybe"]),
    "integer": st.sampled_from(["0", "1", "5", "-1", "x", "", "9" * 30, str(2**63 - 1)]),
}
FIELDS = ["metadata.name=a", "metadata.namespace!=fuzz", "spec.nodeName=", "=", "a", "a=b,c", "\\"]
LABELS = ["a=b", "a in (b,c),!d", "a,b notin (c)", "a>1", "(", "a=é", "=", ",", "x" * 300]
OPTIONS: dict[str, st.SearchStrategy[str]] = {
    "dryRun": st.sampled_from(["All", "", "none"]),
    "fieldManager": st.sampled_from(["me", "you", "", "x" * 200, "\x00"]),
    "fieldValidation": st.sampled_from(["Strict", "Warn", "Ignore", "Odd"]),
    "fieldSelector": st.sampled_from(FIELDS),
    "labelSelector": st.sampled_from(LABELS),
    "continue": st.sampled_from(["", "x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0"]),
    "resourceVersion": st.sampled_from(["", "0", "1", "-1", "x", "99999999999999999999999"]),
    "resourceVersionMatch": st.sampled_from(["", "Exact", "NotOlderThan", "Odd"]),
    "propagationPolicy": st.sampled_from(["Foreground", "Background", "Orphan", "Odd", ""]),
}
