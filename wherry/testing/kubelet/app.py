"""The kubelet's API of one simulated node: the routes that the API server uses.

It is served on connections inside this process only, which the API server alone opens, after it has authorized a request. So
there is neither TLS nor authentication.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from agent.server.container_logs import ContainerLogs
from agent.server.journal_page import JournalPage
from agent.server.pod_list import pod_list
from agent.server.sessions import Sessions, session_routes
from kube.clock import Clock
from kube.journal import PATH as JOURNAL_PATH
from kube.journal import Journal
from wherry.testing.kubelet.logs import SimulatedLogs
from wherry.testing.kubelet.node_pods import NodePods
from wherry.testing.kubelet.sessions import SimulatedSessions
from wherry.testing.kubelet.tasks import Tasks
from wherry.testing.nodes.handlers import Handlers


def build(pods: NodePods, handlers: Handlers, clock: Clock, tasks: Tasks, journal: Journal) -> Starlette:
    """Return the application. `tasks` has the sessions that are under way."""

    async def list_pods(request: Request) -> Response:
        return await pod_list(view.pod for view in pods.views())

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    logs = ContainerLogs(pods, SimulatedLogs(pods), clock)
    sessions = Sessions(pods, SimulatedSessions(pods, handlers, tasks), clock)
    routes = [Route("/healthz", healthz), Route("/pods", list_pods), Route("/pods/", list_pods)]
    routes.append(Route("/containerLogs/{namespace}/{pod}/{container}", logs.read))
    routes.append(Route(JOURNAL_PATH, JournalPage(journal).read))
    return Starlette(routes=[*routes, *session_routes(sessions)])
