"""The audit log's sinks as the configuration names them, and their life."""

from __future__ import annotations

import asyncio

from control.auth.audit import Auditor, Sink
from control.auth.audit_log import LogFile
from control.auth.audit_policy import Policy, PolicyError
from control.auth.audit_webhook import MODES, Batching, BatchWebhook, BlockingWebhook
from control.auth.webhooks.client import ReviewClient
from control.config import ControlConfig
from kube.clock import Clock


class Auditing:
    """`auditor` notes requests, None if there is no policy; `run` delivers what is sent in batches."""

    def __init__(self, config: ControlConfig, clock: Clock) -> None:
        self._log: LogFile | None = None
        self._webhook: BatchWebhook | BlockingWebhook | None = None
        self.auditor: Auditor | None = None
        if config.audit_policy_file is None:
            return
        try:
            policy = Policy.parse(config.audit_policy_file.read_bytes())
        except PolicyError as error:
            raise PolicyError(f"{config.audit_policy_file}: {error}") from error
        self._webhook = _webhook(config, clock)
        path = config.audit_log_file or config.data_dir / "audit.log"
        limits = (config.audit_log_max_bytes, config.audit_log_backups, config.audit_log_max_age)
        self._log = LogFile(path, *limits)
        sinks: list[Sink] = [self._log]
        if self._webhook is not None:
            sinks.append(self._webhook)
        self.auditor = Auditor(policy, sinks, clock)

    async def run(self) -> None:
        """Deliver until cancelled."""
        if isinstance(self._webhook, BatchWebhook):
            await self._webhook.run()

    async def close(self) -> None:
        """Deliver what waits."""
        if self.auditor is not None:
            await self.auditor.close()
        if self._webhook is not None:
            await self._webhook.close()
        if self._log is not None:
            await asyncio.to_thread(self._log.close)


def _webhook(config: ControlConfig, clock: Clock) -> BatchWebhook | BlockingWebhook | None:
    if config.audit_webhook_file is None:
        return None
    if config.audit_webhook_mode not in MODES:
        raise PolicyError(f"audit webhook mode {config.audit_webhook_mode!r}: it is one of {', '.join(MODES)}")
    pause = config.audit_webhook_initial_backoff
    client = ReviewClient(config.audit_webhook_file, clock, first_pause=pause, retry_unreachable=True)
    if config.audit_webhook_mode != "batch":
        return BlockingWebhook(client, strict=config.audit_webhook_mode == "blocking-strict")
    batching = Batching(
        config.audit_webhook_batch_buffer_size,
        config.audit_webhook_batch_max_size,
        config.audit_webhook_batch_max_wait,
        config.audit_webhook_batch_throttle_qps,
        config.audit_webhook_batch_throttle_burst,
    )
    return BatchWebhook(client, clock, batching)
