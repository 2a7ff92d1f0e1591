"""DELETE of an object and of a collection, and the options of both."""

from __future__ import annotations

import asyncio

from control.decoding.decode import Decoder
from control.event_loop.pacing import TimeSlice
from control.http.exchange import Request, Response, typed_response
from control.registry import deletion, deletion_plan
from control.registry.conversion import conversion
from control.server import journaling, responses
from control.server.listing import list_page
from control.server.reading import Reading
from kube import errors
from kube.api import meta_v1
from kube.json_object import Object
from kube.resources import Resource

DELETE_WORKERS = 16
"""Objects of a collection that are deleted concurrently: they share commits."""
_OPTIONS = Decoder(meta_v1.DeleteOptions, "v1", "DeleteOptions")


class Deleting(Reading):
    """The verbs that delete. A collection's deletion chooses as a list does."""

    async def delete_options(self, request: Request, resource: Resource) -> deletion_plan.DeleteOptions:
        """Read a delete's options from the body or else from the query; raises 400, 422."""
        body = await request.document(self.max_body)
        obj: Object = {}
        if body.strip():
            obj = await self.decoded_as(_OPTIONS, request, body, "Ignore", check_kind=False)
            obj.pop("kind", None)
            obj.pop("apiVersion", None)
        options = deletion_plan.read_options(obj, request.query if request.query_string else {})
        warning = self.registry.strategy(resource).orphan_warning
        if warning and options.propagation is None and options.orphan_dependents is None:
            request.warnings.append(warning)
        return options

    async def delete(self, request: Request, resource: Resource) -> Response:
        """Delete an object: 200, or 202 where a foreground deletion continues."""
        form = self.form(request, resource)
        options = await self.delete_options(request, resource)
        context = self._context(request, dry_run=options.dry_run, manager="", options="DeleteOptions")
        context.options |= options.shown()
        namespace, name = self._namespace(request, resource), request.info.name
        served = conversion(resource)
        stored, context.requested = (resource, None) if served is None else (served.stored, resource)
        written, gone, obj = await deletion.delete(self.registry, context, stored, namespace, name, options)
        journaling.deleted(self.registry.journal, request, resource, context, obj, written)
        if written is None:
            details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": obj["metadata"]["uid"]}
            return typed_response(request, success({k: v for k, v in details.items() if v}), "meta_v1", "Status")
        return await responses.written(request, form, written, 202 if options.accepted and not gone else 200)

    async def delete_collection(self, request: Request, resource: Resource) -> Response:
        """Delete what a list with the same options would show, and answer with that list."""
        if "deletecollection" not in resource.verbs:
            raise errors.method_not_allowed()
        form = self.form(request, resource)
        options = await self.delete_options(request, resource)
        chosen = await self.list_options(request, resource)
        context = self._context(request, dry_run=options.dry_run, manager="", options="DeleteOptions")
        context.options |= options.shown()
        served = conversion(resource)
        stored, context.requested = (resource, None) if served is None else (served.stored, resource)
        entries, meta = await list_page(self.registry, resource, self._namespace(request, resource), chosen)
        left, failures, time_slice = iter(entries), list[Exception](), TimeSlice()

        async def work() -> None:
            for entry in left:
                await time_slice.step(len(entry.data))  # a dry run waits for nothing else
                found = entry.head()
                try:
                    written, _, obj = await deletion.delete(
                        self.registry, context, stored, found.namespace, found.name, options
                    )
                    journaling.deleted(self.registry.journal, request, resource, context, obj, written)
                except Exception as error:
                    if not (isinstance(error, errors.StatusError) and error.not_found):
                        failures.append(error)

        # A task an object would take several times the memory of the objects, which the process would keep.
        await asyncio.gather(*(work() for _ in range(min(DELETE_WORKERS, len(entries)))))
        try:
            if failures:
                raise failures[0]
        finally:
            failures.clear()  # their tracebacks refer to this frame, and with it to all entries
        return await responses.listed(request, form, entries, meta, self.registry.settings)


def success(details: Object) -> Object:
    """Return the Status of something that is done and has no object to show."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
