"""POST, PUT and PATCH: a body in, the registry's answer out."""

from __future__ import annotations

from functools import partial
from typing import Any

from control.decoding.decode import directive
from control.event_loop import offload
from control.http.exchange import Request, Response
from control.registry import creation, encoded, updating
from control.registry.context import Context, Written
from control.registry.conversion import conversion
from control.server import journaling, patching, replacing, responses
from control.server.handler_support import HandlerSupport
from control.server.helper import jobs
from kube import errors
from kube.json_object import Object
from kube.resources import Resource


class Writing(HandlerSupport):
    """The verbs that write."""

    async def create(self, request: Request, resource: Resource) -> Response:
        """Create an object from the body: 201."""
        context = self.context(request, "CreateOptions")
        form = self.form(request, resource)
        if len(await request.body(self.max_body)) >= offload.LARGE and encoded.creates(
            self.registry.strategy(resource)
        ):
            written = await self._create_large(request, context, resource)
            journaling.written(self.registry.journal, request, resource, context, written)
            return await responses.written(request, form, written, 201)
        obj = await self.decoded(request, resource)
        context.size = request.weight
        stored = resource
        if (found := conversion(resource)) is not None:
            stored, obj, context.requested = found.stored, found.to_stored(obj), resource
        written = await creation.create(self.registry, context, stored, self._namespace(request, resource), obj)
        journaling.written(self.registry.journal, request, resource, context, written)
        return await responses.written(request, form, written, 201)

    async def _create_large(self, request: Request, context: Context, resource: Resource) -> Written:
        """Create an object without looking at it here: the helper process does."""
        validation = directive(request.option("fieldValidation"))
        namespace, now = self._namespace(request, resource), self.registry.clock.now()
        note = request.note
        if note is not None and note.shows_request:
            await request.document(self.max_body)  # the audit log shows YAML as JSON

        async def decoded(name: list[Any]) -> encoded.Begun:
            sent = bytes(request.sent), request.header(b"content-type"), validation
            given = name, *sent, namespace, context.field_manager, now
            here = partial(jobs.begin_create, *given)
            found: encoded.Begun = await offload.by_helper(context.user.name, "begin_create", *given, instead=here)
            return found

        return await encoded.create(self.registry, context, resource, namespace, decoded)

    async def update(self, request: Request, resource: Resource, subresource: str = "") -> Response:
        """Replace an object, or through a subresource a part of it, by the body: 200, or 201 where it was not there."""
        context = self.context(request, "UpdateOptions")
        form = self.form(request, resource)
        replacement = await replacing.read(self, request, resource, context)
        stored, uid = replacement.stored, replacement.uid
        namespace, name = self._namespace(request, resource), request.info.name

        def gone() -> errors.StatusError:
            absent = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            return errors.conflict(resource.group, resource.plural, name, absent)

        async def change(old: Object | None) -> Object:
            if old is None and uid:
                raise gone()
            return await replacement.take()

        try:
            written = await updating.update(
                self.registry, context, stored, namespace, name, change, subresource=subresource, replaces=True
            )
        except errors.StatusError as error:
            if error.not_found and uid:  # a client that names the UID gets a conflict: it is another object, or none
                raise gone() from error
            raise
        journaling.written(self.registry.journal, request, resource, context, written)
        return await responses.written(request, form, written, 201 if written.created else 200)

    async def patch(self, request: Request, resource: Resource, subresource: str = "") -> Response:
        """Patch an object: 200, or 201 where an apply made it."""
        context = self.context(request, "PatchOptions")
        form = self.form(request, resource)
        body = await request.document(self.max_body)
        context.size = request.weight
        patch = await patching.read(
            request, body, resource, self.decoder(resource), context, self.registry.clock.now(), subresource
        )
        namespace, name = self._namespace(request, resource), request.info.name
        stored, change = resource, patch.change
        if (found := conversion(resource)) is not None:
            served = found

            async def change(old: Object | None) -> Object:
                return served.to_stored(await patch.change(served.to_served(old) if old is not None else None))

            stored, context.requested = found.stored, resource
        written = await updating.update(
            self.registry,
            context,
            stored,
            namespace,
            name,
            change,
            subresource=subresource,
            create_missing=patch.creates and not subresource,
        )
        journaling.written(self.registry.journal, request, resource, context, written)
        return await responses.written(request, form, written, 201 if written.created else 200)
