"""Shared base of the handlers of all verbs: decoders, the form of a response, and the options of a write."""

from __future__ import annotations

from control.auth.user import Authorizer
from control.decoding.decode import Decoder, FieldValidation, directive
from control.event_loop import offload
from control.http.accept import LONGEST
from control.http.exchange import Request
from control.http.negotiate import negotiate
from control.registry.context import Context
from control.registry.registry import Registry
from control.server import authorizing
from control.server.forms import Form, has_protobuf
from control.server.watch_streams import WatchStreams
from kube import errors
from kube.json_object import Object
from kube.resources import Resource

MANAGER_LIMIT = 128


class HandlerSupport:
    """Dependencies of handlers. `max_body` is in bytes."""

    def __init__(self, registry: Registry, watches: WatchStreams, max_body: int, authorizer: Authorizer) -> None:
        self.registry, self.watches, self.max_body, self.authorizer = registry, watches, max_body, authorizer

    def form(self, request: Request, resource: Resource) -> Form:
        """Return how this request's answer is to be shown; raises 406."""
        watching = request.info.verb == "watch"
        wanted = negotiate(request.header(b"accept"), transform=True, protobuf=has_protobuf(resource), stream=watching)
        return Form(wanted, self.registry.strategy(resource), request.option("includeObject"), self.registry.clock)

    def _namespace(self, request: Request, resource: Resource) -> str:
        return request.info.namespace if resource.namespaced else ""

    def context(self, request: Request, options: str) -> Context:
        """Parse the options of a write from the query; raises 422."""
        dry_run = request.query.get("dryRun", []) if request.query_string else []
        manager = request.option("fieldManager")
        problems = []
        if dry_run and any(value != "All" for value in dry_run):
            problems.append(errors.not_supported("dryRun", dry_run, ("All",)))
        if len(manager) > MANAGER_LIMIT:
            detail = f"may not be more than {MANAGER_LIMIT} bytes"
            problems.append(errors.FieldError("fieldManager", "Too long", detail))
        if not manager.isprintable():
            problems.append(errors.invalid_value("fieldManager", manager, "should only contain printable characters"))
        if problems:
            raise errors.invalid("meta.k8s.io", options, "", problems)
        if not manager:
            agent = request.header(b"user-agent")[:LONGEST].partition("/")[0]
            if not agent.isprintable():
                agent = "".join(c for c in agent if c.isprintable())
            manager = agent[:MANAGER_LIMIT]
        return self._context(request, dry_run=bool(dry_run), manager=manager, options=options)

    def _context(self, request: Request, *, dry_run: bool, manager: str, options: str) -> Context:
        note = request.note
        return Context(
            request.user,
            dry_run,
            manager,
            _shown_options(request, options),
            request.warnings,
            annotations=note.annotations if note is not None else {},
            authorize_create=lambda: self.require(request, "create"),
            asked=request.attributes,
        )

    async def require(self, request: Request, verb: str) -> None:
        """Raise 403 if a request's user may not do another verb than its own to what the request names."""
        await authorizing.require(self.authorizer, request, verb)

    def decoder(self, resource: Resource) -> Decoder:
        """Return the decoder of a resource's own kind."""
        return self.registry.served(resource).decoder

    async def decoded(self, request: Request, resource: Resource) -> Object:
        """Return the body as an object of the resource's kind; raises 400, 413, 415."""
        body = await request.document(self.max_body)
        validation = directive(request.option("fieldValidation"))
        return await self.decoded_as(self.decoder(resource), request, body, validation)

    async def decoded_as(
        self, decoder: Decoder, request: Request, body: bytes, validation: FieldValidation, *, check_kind: bool = True
    ) -> Object:
        """Return a request's body as a decoder reads it; raises 400, 415."""
        kind = request.header(b"content-type")
        work = decoder.decode
        return await offload.run(
            request.user.name, request.weight, work, body, kind, validation, request.warnings, check_kind=check_kind
        )


def _shown_options(request: Request, kind: str) -> Object:
    """Return a write's options as admission sees them; those of a patch are shown as those of an update, as upstream."""
    found: Object = {"kind": "UpdateOptions" if kind == "PatchOptions" else kind, "apiVersion": "meta.k8s.io/v1"}
    if request.query_string and kind != "DeleteOptions":
        if dry_run := request.query.get("dryRun"):
            found["dryRun"] = dry_run
        for name in ("fieldManager", "fieldValidation"):
            if value := request.option(name):
                found[name] = value
    return found
