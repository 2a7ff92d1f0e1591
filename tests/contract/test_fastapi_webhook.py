"""An admission webhook written with FastAPI, as its users write one: models, routes, uvicorn with TLS."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field

from tests.contract.test_custom_resources_beside import until
from tests.support import https
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.timeout(120)
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


class Request(BaseModel):
    uid: str
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    object: dict[str, Any] | None = None
    dry_run: bool = Field(False, alias="dryRun")


class Status(BaseModel):
    message: str
    code: int = 403


class Response(BaseModel):
    uid: str
    allowed: bool
    status: Status | None = None
    warnings: list[str] = []
    patch: str | None = None
    patchType: str | None = None


class Review(BaseModel):
    apiVersion: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"
    request: Request | None = None
    response: Response | None = None


app = FastAPI()


@app.post("/mutate", response_model_exclude_none=True)
async def mutate(review: Review) -> Review:
    assert review.request is not None
    patch = json.dumps([{"op": "add", "path": "/data/by", "value": "fastapi"}]).encode()
    encoded = base64.b64encode(patch).decode()
    return Review(response=Response(uid=review.request.uid, allowed=True, patch=encoded, patchType="JSONPatch"))


@app.post("/validate", response_model_exclude_none=True)
def validate(review: Review) -> Review:  # in a thread
    assert review.request is not None and review.request.object is not None
    data, uid = review.request.object["data"], review.request.uid
    if data.get("size") == "big":
        return Review(response=Response(uid=uid, allowed=False, status=Status(message="too big")))
    return Review(response=Response(uid=uid, allowed=True, warnings=[f"by {data['by']}"]))


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[int, bytes]]:
    """Serve the application; yield its port and the certificate authority's certificate."""
    authority = https.authority(folder, "fastapi")
    certificate, key = folder / "fastapi.crt", folder / "fastapi.key"
    config = uvicorn.Config(app, ssl_certfile=str(certificate), ssl_keyfile=str(key), log_level="warning")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1], authority
        finally:
            server.should_exit = True
            await asyncio.to_thread(thread.join)


def registration(path: str, port: int, authority: bytes) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    webhook = {
        "name": f"{path}.example.com",
        "rules": [rule],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/{path}",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return {"metadata": {"name": path}, "webhooks": [webhook]}


async def create(server: ApiUnderTest, name: str, **data: str) -> Any:
    return await server.request("POST", MAPS, {"metadata": {"name": name}, "data": data})


async def test_objects_are_changed_rejected_and_warned_of(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server, served(tmp_path) as (port, authority):
        for kind, path in (("mutating", "mutate"), ("validating", "validate")):
            body = registration(path, port, authority)
            made = await server.request("POST", f"{REGISTRATION}/{kind}webhookconfigurations", body)
            assert made.status == 201, made.json
        numbers = iter(range(100))

        async def called() -> bool:
            return (await create(server, f"try-{next(numbers)}", k="v")).json["data"].get("by") == "fastapi"

        await until(called)
        accepted = await create(server, "small", size="small")
        assert accepted.json["data"] == {"size": "small", "by": "fastapi"}
        assert accepted.headers["Warning"] == '299 - "by fastapi"'
        rejected = await create(server, "large", size="big")
        assert rejected.status == 403
        assert rejected.json["message"] == 'admission webhook "validate.example.com" denied the request: too big'
