"""TokenReviews and SubjectAccessReviews that a port delegates: their connections, and the order in which they are sent.

Any client that reaches the port has a token reviewed. In one line with the daemon's other requests to the API server, a flood
of invented tokens would delay its work (pods and statuses of an agent); so reviews have connections of their own, which the
clients share by address before they are authenticated and by user afterwards (kube/reviews.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kube.client import Client
from kube.client_waits import Waiting, while_connected
from kube.errors import too_many_requests
from kube.fair_places import FairPlaces, NoPlace
from kube.reserved_places import ReservedPlaces
from kube.reviews import Reviews, Send
from kube.transport import HttpsTransport

T = TypeVar("T")

PLACES, PLACES_OF_ONE = 8, 4
"""Reviews that are under way at a time, in all and for one address or user. Another number than that of any other pool of the
client's connections (kube/connections.py)."""
MOST_WAITING, LONGEST_WAIT = 64, 10.0
"""Reviews of one address or user that wait; seconds for which they do."""
REVIEW_SECONDS = 30.0
"""The longest that a review may take once it is sent."""


def client_for_reviews(client: Client) -> Client:
    """Return a client with connections of its own at a client's server."""
    transport = client.transport
    if not isinstance(transport, HttpsTransport):
        return client
    return Client(ReservedPlaces(transport, PLACES, REVIEW_SECONDS))


def places() -> FairPlaces:
    """Return the places of all reviews of a port."""
    return FairPlaces(PLACES, PLACES_OF_ONE, MOST_WAITING, LONGEST_WAIT)


async def reviewed(
    reviews: Reviews[T], client: Waiting | None, key: bytes, known: Callable[[], T | None], send: Send[T]
) -> T:
    """Return a review's answer for a client, see Reviews.ask. Raises StatusError: 429 if it cannot be sent in time."""
    pending = reviews.ask(client.who if client is not None else "", key, known, send)
    try:
        return await (pending if client is None else while_connected(pending, client.until_lost))
    except NoPlace as error:
        raise too_many_requests(f"too many requests wait for a review, please try again later: {error}") from error
