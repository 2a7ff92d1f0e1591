"""The verbs on resources: a checked request in, the registry's answer out in the form that was asked for.

Subresources have modules of their own, named in `control.server.subresources`; a resource that can only be created
(reviews) has one in `control.server.reviews`.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import msgspec

from control import offload
from control.custom.definitions import Definitions
from control.custom.resource import CustomResource
from control.helper import jobs
from control.helper.client import HelperFailed
from control.pacing import Pace
from control.registry import deletion, encoded, metadata
from control.registry.context import Context, Written
from control.registry.conversion import conversion
from control.registry.registry import Registry
from control.server import auditing, authorizing, componentstatus, patching
from control.server.decode import Decoder, FieldValidation, directive
from control.server.exchange import JSON, Answer, Request, Response, typed_response
from control.server.forms import Form, Items, has_protobuf
from control.server.listing import Listing, ListOptions, read_options
from control.server.metrics import CUSTOM
from control.server.negotiate import negotiate
from control.server.pieces import Body, Pieces
from control.server.requestinfo import RequestInfo
from control.storage.entry import Entry
from kube import errors, selectors
from kube.api import meta_v1
from kube.resources import CREATE_ONLY, Resource, by_path

Object = dict[str, Any]
GZIP_FROM = 128 * 1024
_GZIP = 16
"""Added to the size of zlib's window: a gzip header."""
MANAGER_LIMIT = 128
TOGETHER = 256
"""Objects of a list that are put into it without a look at the time."""
DELETE_WORKERS = 16
"""How many objects of a collection are deleted at the same time: they share commits."""
_VIRTUAL = "componentstatuses"
_MEASURED = "metrics.k8s.io"
"""A group that is not stored but measured."""


class ResourceServer:
    """Serves /api/** and /apis/**."""

    def __init__(self, registry: Registry, listing: Listing, max_body: int, subresources: Subresources) -> None:
        self.registry, self.listing, self.max_body = registry, listing, max_body
        self.subresources = subresources
        self.parts: dict[str, Any] = {}
        """What subresources need besides the registry (authenticators, configuration), by name."""
        self.custom: Definitions | None = None
        """What is served besides the built-in resources."""
        self._decoders: dict[Resource, Decoder] = {}
        self._delete_options = Decoder(meta_v1.DeleteOptions, "v1", "DeleteOptions")
        self._known_fields: dict[Resource, frozenset[str]] = {}

    async def __call__(self, request: Request) -> Answer:
        info = request.info
        if info.group == _MEASURED:
            from control.resource_metrics import serve

            return await serve.answer(self, request)
        resource: Resource | None = by_path(info.group, info.version, info.resource)
        if resource is None and self.custom is not None:
            resource = await self.custom.serve(info.group, info.version, info.resource, info.verb)
            if resource is not None:
                request.extensions[CUSTOM] = True
        # A list's name is not in its path: it comes from `fieldSelector=metadata.name=x`, which spans namespaces.
        named = bool(info.name) and (info.verb not in ("list", "watch", "deletecollection") or info.deprecated_watch)
        if resource is None or (resource.namespaced and named and not info.namespace):
            raise errors.path_not_found()
        if info.rest and info.subresource != "proxy":
            raise errors.path_not_found()
        if named and resource.verbs == CREATE_ONLY:
            raise errors.path_not_found()  # nothing of these kinds is stored, so there are no paths of single objects
        if not resource.namespaced and info.namespace and not _is_namespace(resource, info):
            raise errors.path_not_found()
        if resource.namespaced and not info.namespace and info.verb in ("create", "deletecollection"):
            # Upstream has no such routes: only lists and watches span namespaces.
            known = "list" in resource.verbs and not isinstance(resource, CustomResource)
            raise errors.method_not_allowed() if known else errors.path_not_found()
        if info.deprecated_watch:
            if info.subresource:
                raise errors.path_not_found()
            if request.method != "GET":
                raise errors.method_not_allowed()
        if info.name:
            metadata.check_url_name(info.name)
        if info.namespace:
            metadata.check_url_namespace(info.namespace)
        if info.subresource and info.subresource != "status":
            return await self.subresources(self, request, resource)
        if info.subresource == "status" and "status" not in resource.subresources:
            raise errors.path_not_found()
        return await self._dispatch(request, resource, info)

    async def _dispatch(self, request: Request, resource: Resource, info: RequestInfo) -> Answer:
        verb = info.verb
        warning = self.registry.strategy(resource).api_warning
        if warning:
            request.warnings.append(warning)
        if verb not in resource.verbs or (info.subresource and verb not in ("get", "update", "patch")):
            raise errors.method_not_allowed()
        if verb in ("update", "patch") and not info.name:
            raise errors.method_not_allowed()
        if verb == "get":
            return await self.get(request, resource)
        if verb == "list":
            return await self.list(request, resource)
        if verb == "watch":
            return await self.watch(request, resource)
        if verb == "create":
            if resource.verbs == CREATE_ONLY:
                return await self.subresources.review(self, request, resource)
            if info.name:
                raise errors.method_not_allowed()
            return await self.create(request, resource)
        if verb == "update":
            return await self.update(request, resource, info.subresource)
        if verb == "patch":
            return await self.patch(request, resource, info.subresource)
        if verb == "delete":
            return await self.delete(request, resource)
        return await self.delete_collection(request, resource)

    # -- reads ----------------------------------------------------------------------------------------------------
    def form(self, request: Request, resource: Resource) -> Form:
        """Return how this request's answer is to be shown; raises 406."""
        watching = request.info.verb == "watch"
        wanted = negotiate(request.header(b"accept"), True, has_protobuf(resource), watching)
        return Form(wanted, self.registry.strategy(resource), request.option("includeObject"), self.registry.clock)

    async def get(self, request: Request, resource: Resource) -> Response:
        """Answer with one object: its bytes as the cache holds them, unless another form is wanted."""
        accept = request.headers.get(b"accept")
        if resource.target == _VIRTUAL:
            entry = await componentstatus.entry(self.registry, resource, request.info.name)
        else:
            entry = await self.registry.get(resource, self._namespace(request, resource), request.info.name)
        if (
            (accept is None or accept == b"application/json")
            and not request.query_string
            and conversion(resource) is None
        ):
            auditing.keep(request, entry.data)
            return Response(200, entry.data)
        form = self.form(request, resource)
        return await self._shown(request, form, len(entry.data), form.entry, entry)

    async def list(self, request: Request, resource: Resource) -> Response:
        """Answer with a collection."""
        options = self.list_options(request, resource)
        form = self.form(request, resource)
        if resource.target == _VIRTUAL:
            chosen = options.predicate() or (lambda entry: True)
            entries = [entry for entry in await componentstatus.entries(self.registry) if chosen(entry)]
            return await self._listed(request, form, entries, {})
        entries, meta = await self.listing.list(resource, self._namespace(request, resource), options)
        return await self._listed(request, form, entries, meta)

    async def watch(self, request: Request, resource: Resource) -> Answer:
        """Answer with a stream of changes."""
        options = self.list_options(request, resource)
        options.watch = True
        form = self.form(request, resource)
        return await self.listing.watch(resource, self._namespace(request, resource), options, form)

    def list_options(self, request: Request, resource: Resource) -> ListOptions:
        """Read a list's or a watch's options; raises 400.

        The name that was authorised is always a term of the selection: an old watch path names an object, and a field
        selector may not name another one.
        """
        options = read_options(request, self._selectable(resource))
        if name := request.info.name:
            if options.fields.empty:
                options.fields = selectors.FieldSelector((("metadata.name", name, True),))
            elif options.fields.exact("metadata.name") != name:
                raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
        return options

    def _selectable(self, resource: Resource) -> frozenset[str]:
        """Return the fields of a kind that selectors may name besides name and namespace."""
        if isinstance(resource, CustomResource):
            return frozenset(resource.parts.strategy.fields({}))
        known = self._known_fields.get(resource)
        if known is None:
            # A strategy names its selectable fields for any object, also an empty one.
            known = self._known_fields[resource] = frozenset(self.registry.strategy(resource).fields({}))
        return known

    def _namespace(self, request: Request, resource: Resource) -> str:
        return request.info.namespace if resource.namespaced else ""

    async def _listed(
        self, request: Request, form: Form, entries: Sequence[Entry], metadata: dict[str, Any]
    ) -> Response:
        """Answer with a collection; a large one is written in pieces, between which others have their turns."""
        form.pretty = _pretty(request, form)
        size = sum([len(entry.data) for entry in entries])
        body: Body
        if size < (offload.HUGE if form.plain else offload.LARGE):
            body = form.list(entries, metadata)
        elif form.plain:
            body = await _as_stored(form, entries, metadata)
        else:
            items: Items = []
            for piece in _pieces(entries):
                if request.left():
                    raise errors.timeout("the client has closed its connection")
                items += await self._items(request.user.name, form, piece, size)
            body = form.joined(items, metadata)
        return await self._sent(request, form, body, 200)

    async def _items(self, user: str, form: Form, entries: Sequence[Entry], size: int) -> Items:
        """Return a piece of a collection of `size` bytes as the helper writes it, or as the thread does where it cannot."""
        if not (size < offload.HUGE or form.wanted.protobuf or isinstance(form.strategy.resource, CustomResource)):
            name, objects = encoded.named(form.strategy.resource, self.registry.settings), [e.data for e in entries]
            shown = asdict(form.wanted), form.include, form.pretty
            with contextlib.suppress(HelperFailed):
                items: Items = await offload.by_helper(user, "show_items", name, *shown, objects, reading=True)
                return items
        return await offload.read(user, form.items, entries)

    async def _shown(
        self, request: Request, form: Form, size: int, write: Callable[..., bytes], *args: Any, status: int = 200
    ) -> Response:
        """Return the answer that `write` makes of `size` bytes of objects; the plain form takes no time."""
        user = request.user.name
        body = await offload.run(user, 0 if form.plain else size, write, *args)
        return await self._sent(request, form, body, status)

    async def _sent(self, request: Request, form: Form, body: Body, status: int) -> Response:
        """Return an answer with line breaks, and compressed, where its client wants that."""
        user = request.user.name
        auditing.keep(request, body)
        if isinstance(body, bytes) and not form.pretty and _pretty(request, form):
            body = await offload.run(user, len(body), msgspec.json.format, body, indent=2)
        response = Response(status, body, form.wanted.content_type)
        if len(body) >= GZIP_FROM and b"gzip" in request.headers.get(b"accept-encoding", b""):
            response.body = await _zipped(user, body, offload.read if request.method == "GET" else offload.apart)
            response.headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        return response

    # -- writes ---------------------------------------------------------------------------------------------------
    def context(self, request: Request, options: str) -> Context:
        """Read what the query says of a write; raises 422."""
        dry_run = request.query.get("dryRun", []) if request.query_string else []
        manager = request.option("fieldManager")
        problems = []
        if any(value != "All" for value in dry_run):
            problems.append(errors.not_supported("dryRun", dry_run, ("All",)))
        if len(manager) > MANAGER_LIMIT:
            detail = f"may not be more than {MANAGER_LIMIT} bytes"
            problems.append(errors.FieldError("fieldManager", "Too long", detail))
        if any(not c.isprintable() for c in manager):
            problems.append(errors.invalid_value("fieldManager", manager, "should only contain printable characters"))
        if problems:
            raise errors.invalid("meta.k8s.io", options, "", problems)
        if not manager:
            agent = request.header(b"user-agent").partition("/")[0]
            manager = "".join(c for c in agent if c.isprintable())[:MANAGER_LIMIT]
        return self._context(request, bool(dry_run), manager, options)

    def _context(self, request: Request, dry_run: bool, manager: str, options: str) -> Context:
        note = auditing.note_of(request)
        return Context(
            request.user,
            dry_run,
            manager,
            _shown_options(request, options),
            request.warnings,
            annotations=note.annotations if note is not None else {},
            authorize_create=lambda: self.require(request, "create"),
            asked=authorizing.attributes(request, request.info, request.user),
        )

    async def require(self, request: Request, verb: str) -> None:
        """Raise 403 where a request's user may not do another verb than its own to what the request names."""
        await authorizing.require(self.parts["auth"].authorizer, request, verb)

    def decoder(self, resource: Resource) -> Decoder:
        """Return the decoder of a resource's own kind."""
        if isinstance(resource, CustomResource):
            return resource.parts.decoder
        found = self._decoders.get(resource)
        if found is None:
            found = self._decoders[resource] = Decoder(resource.type, resource.api_version, resource.kind)
        return found

    async def decoded(self, request: Request, resource: Resource) -> Object:
        """Return the body as an object of the resource's kind; raises 400, 413, 415."""
        body = await request.document(self.max_body)
        validation = directive(request.option("fieldValidation"))
        return await self.decoded_as(self.decoder(resource), request, body, validation)

    async def decoded_as(
        self, decoder: Decoder, request: Request, body: bytes, validation: FieldValidation, check_kind: bool = True
    ) -> Object:
        """Return a body as a decoder reads it; raises 400, 415."""
        kind = request.header(b"content-type")
        work = decoder.decode
        return await offload.run(
            request.user.name, len(body), work, body, kind, validation, request.warnings, check_kind
        )

    async def create(self, request: Request, resource: Resource) -> Response:
        """Create an object from the body: 201."""
        context = self.context(request, "CreateOptions")
        form = self.form(request, resource)
        if len(await request.body(self.max_body)) >= offload.LARGE and encoded.creates(
            self.registry.strategy(resource)
        ):
            return await self._written(request, form, await self._create_large(request, context, resource), 201)
        obj = await self.decoded(request, resource)
        context.size = len(request.sent)
        stored = resource
        if (found := conversion(resource)) is not None:
            stored, obj, context.requested = found.stored, found.to_stored(obj), resource
        written = await self.registry.create(context, stored, self._namespace(request, resource), obj)
        return await self._written(request, form, written, 201)

    async def _create_large(self, request: Request, context: Context, resource: Resource) -> Written:
        """Create an object without looking at it here: the helper process does."""
        validation = directive(request.option("fieldValidation"))
        namespace, now = self._namespace(request, resource), self.registry.clock.now()
        note = auditing.note_of(request)
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
        obj = await self.decoded(request, resource)
        context.size = len(request.sent)
        namespace, name = self._namespace(request, resource), request.info.name
        metadata.match_name(obj.setdefault("metadata", {}), name, namespace)
        metadata.match_namespace(resource, obj["metadata"], namespace)
        stored = resource
        if (found := conversion(resource)) is not None:
            stored, obj, context.requested = found.stored, found.to_stored(obj), resource
        pristine, uid = msgspec.json.encode(obj), obj["metadata"].get("uid")

        def gone() -> errors.StatusError:
            absent = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            return errors.conflict(resource.group, resource.plural, name, absent)

        async def change(old: Object | None) -> Object:
            if old is None and uid:
                raise gone()
            fresh: Object = await offload.run(request.user.name, len(pristine), msgspec.json.decode, pristine)
            return fresh

        try:
            written = await self.registry.update(context, stored, namespace, name, change, subresource=subresource)
        except errors.StatusError as error:
            if error.not_found and uid:  # who names the object that they mean is told that it is another one, or none
                raise gone() from error
            raise
        return await self._written(request, form, written, 201 if written.created else 200)

    async def patch(self, request: Request, resource: Resource, subresource: str = "") -> Response:
        """Patch an object: 200, or 201 where an apply made it."""
        context = self.context(request, "PatchOptions")
        form = self.form(request, resource)
        body = await request.document(self.max_body)
        context.size = len(body)
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
        written = await self.registry.update(
            context,
            stored,
            namespace,
            name,
            change,
            subresource=subresource,
            create_missing=patch.creates and not subresource,
        )
        return await self._written(request, form, written, 201 if written.created else 200)

    async def _written(self, request: Request, form: Form, written: Written, status: int) -> Response:
        return await self._shown(request, form, len(written.data), form.object, written.data, status=status)

    # -- deletion -------------------------------------------------------------------------------------------------
    async def delete_options(self, request: Request, resource: Resource) -> deletion.DeleteOptions:
        """Read a delete's options from the body or else from the query; raises 400, 422."""
        body = await request.document(self.max_body)
        obj: Object = {}
        if body.strip():
            obj = await self.decoded_as(self._delete_options, request, body, "Ignore", check_kind=False)
            obj.pop("kind", None)
            obj.pop("apiVersion", None)
        options = deletion.read_options(obj, request.query if request.query_string else {})
        warning = self.registry.strategy(resource).orphan_warning
        if warning and options.propagation is None and options.orphan_dependents is None:
            request.warnings.append(warning)
        return options

    async def delete(self, request: Request, resource: Resource) -> Response:
        """Delete an object: 200, or 202 where a foreground deletion goes on."""
        form = self.form(request, resource)
        options = await self.delete_options(request, resource)
        context = self._context(request, options.dry_run, "", "DeleteOptions")
        context.options |= options.shown()
        namespace, name = self._namespace(request, resource), request.info.name
        served = conversion(resource)
        stored, context.requested = (resource, None) if served is None else (served.stored, resource)
        written, gone, obj = await self.registry.delete(context, stored, namespace, name, options)
        if written is None:
            details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": obj["metadata"]["uid"]}
            return typed_response(request, success({k: v for k, v in details.items() if v}), "meta_v1", "Status")
        return await self._written(request, form, written, 202 if options.accepted and not gone else 200)

    async def delete_collection(self, request: Request, resource: Resource) -> Response:
        """Delete what a list with the same options would show, and answer with that list."""
        if "deletecollection" not in resource.verbs:
            raise errors.method_not_allowed()
        form = self.form(request, resource)
        options = await self.delete_options(request, resource)
        chosen = self.list_options(request, resource)
        context = self._context(request, options.dry_run, "", "DeleteOptions")
        context.options |= options.shown()
        served = conversion(resource)
        stored, context.requested = (resource, None) if served is None else (served.stored, resource)
        entries, meta = await self.listing.list(resource, self._namespace(request, resource), chosen)
        left, failures, pace = iter(entries), list[Exception](), Pace()

        async def work() -> None:
            for entry in left:
                await pace.step(len(entry.data))  # a dry run waits for nothing else
                found = entry.head()
                try:
                    await self.registry.delete(context, stored, found.namespace, found.name, options)
                except Exception as error:
                    if not (isinstance(error, errors.StatusError) and error.not_found):
                        failures.append(error)

        # A task an object would take several times the memory of the objects, which the process would keep.
        await asyncio.gather(*(work() for _ in range(min(DELETE_WORKERS, len(entries)))))
        if failures:
            raise failures[0]
        return await self._listed(request, form, entries, meta)


def _pretty(request: Request, form: Form) -> bool:
    return bool(request.query_string and request.flag("pretty") and form.wanted.content_type == JSON)


def _pieces(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Return the parts of a list that are written at one turn each."""
    begin = size = 0
    for index, entry in enumerate(entries):
        if size and size + len(entry.data) > offload.PIECE:
            yield entries[begin:index]
            begin, size = index, 0
        size += len(entry.data)
    yield entries[begin:]


async def _as_stored(form: Form, entries: Sequence[Entry], metadata: dict[str, Any]) -> Pieces:
    (pieces, items), pace = form.as_stored(metadata), Pace()
    for start in range(0, len(entries), TOGETHER):
        await pace.step()
        pieces.extend(items(entries[start : start + TOGETHER]))
    return pieces


async def _zipped(user: str, body: Body, beside: Callable[..., Awaitable[bytes]]) -> bytes:
    compressor = zlib.compressobj(1, wbits=zlib.MAX_WBITS | _GZIP)
    parts = [await beside(user, compressor.compress, part) for part in _parts(body)]
    return b"".join((*parts, compressor.flush()))


def _parts(body: Body) -> Iterator[bytes | memoryview]:
    """Return what is compressed at one turn each."""
    if isinstance(body, Pieces):
        yield from body.parts(offload.HUGE)
        return
    view = memoryview(body)
    for start in range(0, len(body), offload.HUGE):
        yield view[start : start + offload.HUGE]


def _is_namespace(resource: Resource, info: RequestInfo) -> bool:
    """Say whether a request is for the very Namespace that it was authorised in.

    /namespaces/a is authorised in a, but so is /namespaces/a/namespaces/b, which is no path that there is.
    """
    one = info.deprecated_watch or info.verb not in ("list", "watch")
    return resource.target == "namespaces" and info.name == info.namespace and one


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


def success(details: Object) -> Object:
    """Return the Status of something that is done and has no object to show."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


from control.server.subresources import Subresources  # noqa: E402 - they need ResourceServer in turn
