"""Load balancers at nodes' own addresses, with real packets in every mode."""

import asyncio
from collections.abc import Callable

from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, populated, running, serve_http, until
from tests.support.services import node, service, slice_of


def test_the_node_answers_for_itself_alone_and_keeps_its_other_ports(site: Site) -> None:
    async def check() -> None:
        api = populated(
            service("web", "10.96.5.1", type="LoadBalancer", ingress=(NODE_IP, CLIENT_IP)),
            slice_of("web", PODS["pod-a"]),
            node("other", "10.244.9.0/24", CLIENT_IP),
        )
        # The client plays another node, which serves the balancer's other address itself.
        await asyncio.to_thread(serve_http, site.client, site.folder / "other", "other", 80)
        await asyncio.to_thread(serve_http, site.node, site.folder / "own", "own", 9000)
        async with running(site.config, api):
            await until(lambda: site.fetch(site.client, NODE_IP) == "pod-a", "the balancer answers outside")
            for origin in (site.node, site.pods["pod-b"]):
                assert await asyncio.to_thread(site.fetch, origin, NODE_IP) == "pod-a"
                assert await asyncio.to_thread(site.fetch, origin, CLIENT_IP) == "other"
            assert await asyncio.to_thread(site.fetch, site.client, NODE_IP, 9000) == "own"

    site.node.inside(check)


def test_a_daemon_of_the_node_keeps_its_port_whichever_was_there_first(site: Site) -> None:
    async def check() -> None:
        api = populated(
            service("web", "10.96.5.1", type="LoadBalancer", ingress=(NODE_IP,)),
            slice_of("web", PODS["pod-a"]),
        )

        def answered(what: str) -> Callable[[], bool]:
            return lambda: site.fetch(site.client, NODE_IP) == what

        daemon = await asyncio.to_thread(serve_http, site.node, site.folder / "own", "own", 80)
        async with running(site.config, api):
            await until(lambda: site.fetch(site.pods["pod-b"], "10.96.5.1") == "pod-a", "the Service is in force")
            assert await asyncio.to_thread(site.fetch, site.client, NODE_IP) == "own"
            daemon.terminate()
            await until(answered("pod-a"), "the balancer answers once the daemon has gone")
            await asyncio.to_thread(serve_http, site.node, site.folder / "again", "again", 80)
            await until(answered("again"), "a daemon that comes later gets its port")

    site.node.inside(check)
