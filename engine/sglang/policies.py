"""Which policies SGLang can run, on streams made at its start, and what its measured prefills teach."""

from __future__ import annotations

import logging
from dataclasses import replace

from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.registry import NO_PREFILL_GRAPHS, parse_policy
from pdmuxd.engine.core.types import EngineLimits, PrefillSample
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.loop.engine_info import Splits
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.sglang.engine_info import EngineInfo
from pdmuxd.engine.sglang.partition_tables import stream_groups

_log = logging.getLogger(__name__)


class SglangPolicies:
    """Implements EngineInfo."""

    def __init__(self, engine_info: EngineInfo) -> None:
        self._engine_info = engine_info
        self._noted: set[str] = set()

    @property
    def limits(self) -> EngineLimits:
        return self._engine_info.limits

    @property
    def total_sms(self) -> int:
        return self._engine_info.device.total_sms

    def build(
        self,
        spec: str,
        predictors: Predictors | None,
        splits: Splits | None,
        delivery_s: float | None = None,
    ) -> tuple[AnyPolicy, tuple[int, ...]]:
        """The policy and the streams of its groups; its unsplit form if the model cannot be split.

        Raises: PolicyError, PartitionError, ProfileError; also for a policy that is then replaced.
        """
        context = self._engine_info.context(predictors).delivering(delivery_s)
        if splits is not None:
            context = replace(context, splits=splits)
        asked = parse_policy(spec)
        policy = asked.build(context)
        if self._engine_info.unsplit and asked.may_split:
            # Without groups it asks for no latencies on SMs that nothing was measured on.
            policy = parse_policy(asked.unsplit).build(replace(context, splits=()))
        groups = stream_groups(policy, self._engine_info.table)
        self._note(spec, in_force=policy.name)
        return policy, groups

    def prefill_sample(self, batch: LayerwiseBatch) -> PrefillSample | None:
        """One of a single request, which ran alone on all SMs, says what its shape takes."""
        shape = batch.shape
        if shape.bs != 1 or not batch.ran_alone or batch.sms != self.total_sms:
            return None
        return self._engine_info.prefill_sample(shape.new_tokens, shape.reused_tokens, batch.device_s)

    def _note(self, spec: str, *, in_force: str) -> None:
        """Warn about what this engine cannot do of a policy, once for each policy that is asked for."""
        if spec in self._noted:
            return
        self._noted.add(spec)
        if self._engine_info.unsplit and parse_policy(spec).may_split:
            _log.warning(
                "pdmuxd: %s is not prefilled by layers (%s), which policy %s may ask for: %s is in force",
                self._engine_info.model_name,
                self._engine_info.unsplit,
                spec,
                in_force,
            )
        elif parse_policy(spec).wants_prefill_graphs:
            _log.warning("pdmuxd: policy %s: %s", spec, NO_PREFILL_GRAPHS)
