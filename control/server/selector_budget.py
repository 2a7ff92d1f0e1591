"""Budget of the memory that the selectors of open watches take, for each user.

A query of 64 KiB has thousands of terms, which take a megabyte for as long as the watch. Ordinary watches, with short queries,
are not counted.
"""

from __future__ import annotations

from kube.errors import too_many_requests
from kube.owners import owner_of

SMALL = 4 << 10
"""Weight of a query (query_selectors.release) up to which a watch is not counted."""
EACH = 2 << 20
"""Maximum weight of the other queries of one user's open watches. Compiled they take up to ten times as many bytes."""
RETRY_SECONDS = 10


class Reservation:
    """Reservation of one watch in the budget, returned by `release` or when the object is freed."""

    __slots__ = ("_budget", "_owner", "_size")

    def __init__(self, budget: SelectorBudget | None = None, owner: str = "", size: int = 0) -> None:
        self._budget, self._owner, self._size = budget, owner, size

    def release(self) -> None:
        """Return it to the budget; further calls change nothing."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.add(self._owner, -self._size)

    __del__ = release


NO_RESERVATION = Reservation()


class SelectorBudget:
    """Weights of the large queries of open watches, by the owner of the watch (kube/owners.py)."""

    def __init__(self) -> None:
        self._weights: dict[str, int] = {}

    def hold(self, user: str, size: int) -> Reservation:
        """Count a query of a weight for a user; raises 429 if the user's watches have too much."""
        if size <= SMALL:
            return NO_RESERVATION
        owner = owner_of(user)
        if self._weights.get(owner, 0) + size > EACH:
            why = (
                "the selectors of your open watches take too much memory: close some watches, or use shorter selectors"
            )
            raise too_many_requests(why, RETRY_SECONDS)
        self.add(owner, size)
        return Reservation(self, owner, size)

    def add(self, owner: str, size: int) -> None:
        """Change an owner's weight."""
        self._weights[owner] = self._weights.get(owner, 0) + size
        if not self._weights[owner]:
            del self._weights[owner]
