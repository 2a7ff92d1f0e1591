"""ImagePolicyWebhook (off by default): a webhook decides which images may run.

It is asked over HTTPS with an `imagepolicy.k8s.io/v1alpha1` ImageReview that names the images, the namespace, and the pod's
annotations whose names hold `.image-policy.k8s.io/`. Its answers are kept for a while. Where it cannot be asked, `defaultAllow`
says whether pods are let in. One that waits too long behind others of its user was not asked: the pod is refused (429).
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec

from control.admission.refusal import refuse
from control.auth.fields import ConfigurationError, known, object_at
from control.auth.webhooks.client import ReviewClient, ReviewFailed, not_asked, places
from control.auth.webhooks.response_cache import ResponseCache
from control.interfaces.admission import Attributes, Plugin
from kube.clock import Clock
from kube.fair_places import NoPlace
from kube.json_object import Object
from kube.kubeconfig import KubeconfigError
from kube.owners import owner_of
from kube.reviews import Reviews

log = logging.getLogger(__name__)
REMEMBERED = 1024
_LISTS = ("containers", "initContainers", "ephemeralContainers")


class ImagePolicyWebhook(Plugin):
    name = "ImagePolicyWebhook"
    targets = ("pods",)

    def __init__(self, configuration: Object, clock: Clock) -> None:
        settings = object_at(configuration, "imagePolicy", "")
        known(settings, "imagePolicy", ("kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"))
        self._allow_ttl = _within(settings, "allowTTL", 300, 1, 1800)
        self._deny_ttl = _within(settings, "denyTTL", 30, 1, 1800)
        pause = _within(settings, "retryBackoff", 500, 1, 300_000) / 1000
        self._default = bool(settings.get("defaultAllow"))
        path = str(settings.get("kubeConfigFile") or "")
        try:
            self._client = ReviewClient(Path(path), clock, first_pause=pause)
        except (KubeconfigError, ssl.SSLError, ValueError, OSError) as error:
            raise ConfigurationError(f"imagePolicy.kubeConfigFile: {error}") from error
        self._answers: ResponseCache[Object] = ResponseCache(clock, REMEMBERED)
        self._reviews: Reviews[Object] = Reviews(places())

    def handles(self, attributes: Attributes) -> bool:
        if attributes.resource.target != "pods":
            return False
        if attributes.subresource == "ephemeralcontainers":
            return attributes.operation == "UPDATE"
        return attributes.operation in ("CREATE", "UPDATE") and not attributes.subresource

    async def validate(self, attributes: Attributes) -> None:
        pod = attributes.obj or {}
        if attributes.old is not None and _images(pod) == _images(attributes.old):
            return
        annotations = pod.get("metadata", {}).get("annotations") or {}
        spec = {
            "containers": _images(pod),
            "annotations": {name: value for name, value in annotations.items() if ".image-policy.k8s.io/" in name},
            "namespace": attributes.namespace,
        }
        try:
            status = await self._review(owner_of(attributes.user.name), spec)
        except NoPlace as error:
            raise not_asked(error) from error
        except ReviewFailed as error:
            if not self._default:
                raise refuse(attributes, str(error)) from error
            log.warning("the image policy webhook failed, and the pod is admitted: %s", error)
            attributes.annotations[f"{self.name}/failed-open"] = "true"
            return
        for name, value in (status.get("auditAnnotations") or {}).items():
            attributes.annotations.setdefault(f"{self.name}/{name}", str(value))
        if not status.get("allowed"):
            reason = status.get("reason")
            why = f"image policy webhook backend denied one or more images: {reason}"
            raise refuse(attributes, why if reason else "one or more images rejected by webhook backend")

    async def _review(self, owner: str, spec: Object) -> Object:
        key = hashlib.sha256(msgspec.json.encode(spec, order="sorted")).digest()
        status = self._answers.get(key)
        if status is None:
            status = await self._reviews.ask(
                owner, key, lambda: self._answers.get(key), lambda wanted: self._send(key, spec, wanted)
            )
        return status

    async def _send(self, key: bytes, spec: Object, wanted: Callable[[], bool]) -> Object:
        review = {"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "spec": spec}
        status = await self._client.ask(review, wanted)
        self._answers.put(key, status, self._allow_ttl if status.get("allowed") else self._deny_ttl)
        return status

    async def close(self) -> None:
        await self._reviews.close()
        await self._client.close()


def _images(pod: Object) -> list[Object]:
    spec = pod.get("spec") or {}
    return [{"image": container.get("image", "")} for part in _LISTS for container in spec.get(part) or ()]


def _within(settings: Object, name: str, default: int, low: int, high: int) -> float:
    """Read a number of seconds or milliseconds: 0 is the default, below zero is none at all."""
    value = settings.get(name) or default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"imagePolicy.{name}: must be a number")
    if value < 0:
        return 0
    if not low <= value <= high:
        raise ConfigurationError(f"imagePolicy.{name}: valid value is between {low} and {high}, got {value}")
    return float(value)
