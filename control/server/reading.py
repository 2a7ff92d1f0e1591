"""GET, LIST and WATCH."""

from __future__ import annotations

from control.event_loop.weight import weight
from control.http.exchange import Answer, Request, Response
from control.registry.conversion import conversion
from control.server import auditing, componentstatus, query_selectors, responses
from control.server.handler_support import HandlerSupport
from control.server.list_options import ListOptions, read_options
from control.server.listing import list_page
from kube import errors, selectors
from kube.resources import Resource

_VIRTUAL = "componentstatuses"


class Reading(HandlerSupport):
    """The verbs that read."""

    async def get(self, request: Request, resource: Resource) -> Response:
        """Answer with one object: its bytes as the cache holds them, unless another form is wanted."""
        accept = request.headers.get(b"accept")
        if resource.target == _VIRTUAL:
            entry = await componentstatus.entry(self.registry, resource, request.info.name)
        else:
            entry = await self.registry.get(resource, self._namespace(request, resource), request.info.name)
        if (
            (accept is None or accept == b"application/json")
            and not request.pretty
            and not request.query_string
            and conversion(resource) is None
        ):
            auditing.keep(request, entry.data)
            return Response(200, entry.data)
        form = self.form(request, resource)
        return await responses.shown(request, form, weight(entry.data), form.entry, entry)

    async def list(self, request: Request, resource: Resource) -> Response:
        """Answer with a collection."""
        options = await self.list_options(request, resource)
        form = self.form(request, resource)
        if resource.target == _VIRTUAL:
            chosen = options.predicate() or (lambda entry: True)
            virtual = [entry for entry in await componentstatus.entries(self.registry) if chosen(entry)]
            return await responses.listed(request, form, virtual, {}, self.registry.settings)
        entries, meta = await list_page(self.registry, resource, self._namespace(request, resource), options)
        return await responses.listed(request, form, entries, meta, self.registry.settings)

    async def watch(self, request: Request, resource: Resource) -> Answer:
        """Answer with a stream of changes."""
        options = await self.list_options(request, resource)
        options.watch = True
        form, size = self.form(request, resource), query_selectors.release(request)
        namespace = self._namespace(request, resource)
        return await self.watches.open(resource, namespace, options, form, request.user.name, size)

    async def list_options(self, request: Request, resource: Resource) -> ListOptions:
        """Read a list's or a watch's options; raises 400.

        The name that was authorised is always a term of the selection: an old watch path names an object, and a field
        selector may not name another one.
        """
        options = await read_options(request, self.registry.served(resource).selectable)
        if name := request.info.name:
            if options.fields.empty:
                options.fields, options.key = selectors.FieldSelector((("metadata.name", name, True),)), b""
            elif options.fields.exact("metadata.name") != name:
                raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
        return options
