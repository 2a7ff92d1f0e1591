"""Requests to the API server without kubectl in between, where the status code and the bytes matter."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Answer:
    """Response; code 0 if there was none."""

    code: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def refusal(self) -> tuple[int, str, str]:
        """Code, reason and message of a Status; the code in the body and on the wire must agree."""
        status = self.json
        assert status["kind"] == "Status", status
        assert status["apiVersion"] == "v1", status
        assert status["status"] == "Failure", status
        assert status["code"] == self.code, status
        assert status["metadata"] == {}, status
        return self.code, status.get("reason", ""), status["message"]


class Raw:
    """curl as somebody: a client certificate out of a kubeconfig, a token, or nobody."""

    def __init__(self, cluster: Cluster, kubeconfig: Path | None = None, token: str = "", anonymous: bool = False):
        self.cluster = cluster
        read = yaml.safe_load((kubeconfig or cluster.kubeconfig).read_text())
        server = read["clusters"][0]["cluster"]
        self.server: str = server["server"]
        self.folder = cluster.prefix / "raw" / (kubeconfig or cluster.kubeconfig).stem
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca = self._file("ca.crt", server, "certificate-authority")
        self.identity: list[str] = []
        if token:
            self.identity = ["-H", f"Authorization: Bearer {token}"]
        elif not anonymous:
            user = read["users"][0]["user"]
            certificate = self._file("client.crt", user, "client-certificate")
            self.identity = ["--cert", str(certificate), "--key", str(self._file("client.key", user, "client-key"))]

    def _file(self, name: str, entry: dict[str, Any], key: str) -> Path:
        if key in entry:
            return Path(entry[key])
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(entry[f"{key}-data"]))
        return path

    def argv(self, *options: str) -> list[str]:
        return ["curl", "-sS", "--path-as-is", "--cacert", str(self.ca), *self.identity, *options]

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        server: str = "",
        timeout: int = 20,
        options: tuple[str, ...] = (),
    ) -> Answer:
        """Send one request; a str body is sent as it is, anything else as JSON."""
        data = None if body is None else body if isinstance(body, str) else json.dumps(body)
        argv = self.argv("-i", "-X", method, "--max-time", str(timeout), *options)
        for name, value in (headers or {}).items():
            argv += ["-H", f"{name}: {value}"]
        if data is not None:
            argv += ["-H", f"Content-Type: {content_type}", "-H", "Expect:", "--data-binary", "@-"]
        done = self.cluster.host.run(*argv, (server or self.server) + path, check=False, input=data)
        head, _, text = done.stdout.partition("\n\n")
        lines = head.splitlines()
        if not lines or not lines[0].startswith("HTTP/"):
            return Answer(0, {}, done.stderr)
        pairs = (line.partition(":") for line in lines[1:])
        return Answer(int(lines[0].split()[1]), {k.lower(): v.strip() for k, _, v in pairs}, text)

    def get(self, path: str, **more: Any) -> Answer:
        return self.send("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.send("POST", path, body, **more)
