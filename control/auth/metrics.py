"""Metrics of authentication and authorization, with upstream's names and labels."""

from __future__ import annotations

from kube.counters import Counter, Gauge, Histogram

_WAITS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24)
_SHORT = tuple(0.001 * 2**n for n in range(15))

ATTEMPTS = Counter("authentication_attempts", "Requests whose authentication was tried, by result.", "result")
ATTEMPT_SECONDS = Histogram(
    "authentication_duration_seconds", "Time that authentication took.", "result", buckets=_SHORT
)
USERS = Counter("authenticated_user_requests", "Authenticated requests by user.", "username")


class Authorizations:
    """Questions to the chain of authorizers: how many, and how long they took."""

    def __init__(self) -> None:
        self.attempts = Counter("authorization_attempts", "Questions to the authorizers, by result.", "result")
        self.seconds = Histogram(
            "authorization_duration_seconds", "Time that authorization took.", "result", buckets=_SHORT
        )

    def observe(self, result: str, seconds: float) -> None:
        self.attempts.add(result)
        self.seconds.observe(result, seconds)


AUTHORIZATIONS = Authorizations()
DECISIONS = Counter("apiserver_authorization_decisions", "Decisions by authorizer.", "type", "name", "decision")
EVALUATIONS = Counter(
    "apiserver_authorization_webhook_evaluations", "Questions to authorization webhooks.", "name", "result"
)
FAIL_OPEN = Counter(
    "apiserver_authorization_webhook_evaluations_fail_open",
    "Questions to authorization webhooks that failed and were left to the next authorizer.",
    "name",
    "result",
)
WEBHOOK_SECONDS = Histogram(
    "apiserver_authorization_webhook_duration_seconds", "Time that webhooks took.", "name", "result", buckets=_WAITS
)
CONDITION_ERRORS = Counter(
    "apiserver_authorization_match_condition_evaluation_errors", "Match conditions that failed.", "type", "name"
)
EXCLUDED = Counter(
    "apiserver_authorization_match_condition_exclusions",
    "Requests that an authorizer was not asked about for its match conditions.",
    "type",
    "name",
)
RELOADS = {
    what: Counter(
        f"apiserver_{what}_config_controller_automatic_reloads",
        "Times that the configuration file was read again.",
        "status",
        "apiserver_id_hash",
    )
    for what in ("authentication", "authorization", "encryption")
}
RELOADED = {
    what: Gauge(
        f"apiserver_{what}_config_controller_automatic_reload_last_timestamp_seconds",
        "When the configuration file was last read again.",
        "status",
        "apiserver_id_hash",
    )
    for what in ("authentication", "authorization", "encryption")
}
