"""The admin address keeps what its OpenAPI document promises, whatever is sent: all checks of Schemathesis.

A few cases of each operation in the fast part of the tests, over 2,000 in all in the slow part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from profiling import measured_profile
from replay_jobs import Jobs
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from stores import ADMIN_TOKEN, new_database, opened, slo
from telemetry_feeds import loaded_telemetry, predicting

from pdmuxd.controlplane.admin_app import build_admin_app
from pdmuxd.controlplane.api.auth import OPENAPI_PATH
from pdmuxd.controlplane.node.daemon_actions import DutyState, Reloaded
from pdmuxd.controlplane.node.engine_actions import Action, Done
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap
from pdmuxd.controlplane.tenants.credentials import digest

HEADERS = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
ALL_CASES = 2000
CONFIG = {
    "seed": 7,
    "checks": {
        # A version that was expected and does not hold is refused: what was sent is right nevertheless.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "412", "5xx"]},
    },
    "operations": [
        {
            # A profile is a document of thousands of numbers that must fit each other, which no schema says.
            "include-path": "/api/v1/profiles",
            "include-method": "POST",
            "checks": {"positive_data_acceptance": {"enabled": False}},
        },
        *(
            # Rules that no schema says: an instant after another, in years that have a calendar; a policy of
            # this device; a limit with an action that it cannot have.
            {
                "include-path": path,
                "include-method": method,
                "checks": {"positive_data_acceptance": {"enabled": False}},
            }
            for path, method in (
                ("/api/v1/history", "GET"),
                ("/api/v1/history/decisions", "GET"),
                ("/api/v1/usage", "GET"),
                ("/api/v1/policy", "PUT"),
                ("/api/v1/tenants/{name}/limits", "PATCH"),
                ("/api/v1/keys/{key_id}/limits", "PATCH"),
            )
        ),
    ],
}


class AnyAction:
    """An engine on which everything works."""

    def start(self) -> Done:
        return self._done("start")

    def drain(self) -> Done:
        return self._done("drain")

    def resume(self) -> Done:
        return self._done("resume")

    def restart(self, *, at_once: bool) -> Done:
        return self._done("restart")

    def _done(self, action: Action) -> Done:
        return Done(action=action, changed=True, state="serving", text="done")


class AnyDaemon:
    """A daemon that reloads and gives its place to whoever asks."""

    def reload(self) -> Reloaded:
        return Reloaded(in_force=("drain_timeout_s",))

    async def upgrade(self, *, migrate: bool) -> str:
        return "0.2.0"

    def duty_states(self) -> tuple[DutyState, ...]:
        storing = DutyState(
            name="storing", period_s=5.0, last_run_s=0.0, failed="OSError: full", is_alone=False
        )
        return (storing,)


@pytest.fixture
def schema() -> Iterator[schemathesis.BaseSchema]:
    """Of an application with something in each table; its stream of events is over, or it would not end."""
    with tempfile.TemporaryDirectory() as folder, opened(new_database(Path(folder))) as control_plane:
        since_ms = control_plane.create_tenant("chat", slo(0.011), max_tbt_cost_ratio=0.1).since_ms
        control_plane.create_tenant("search", slo(0.06))
        control_plane.keys.issue("chat")
        control_plane.admin_tokens.issue("deploy")
        control_plane.profiles.add(measured_profile(), origin="measured")
        known = loaded_telemetry(control_plane.directory, seconds=8)
        known.tbt_caps = {
            "chat": TbtCap(since_s=known.clock(), tenant_since_ms=since_ms, tbt_s=0.06, cost_ratio=0.2)
        }
        known.events.close()
        app = build_admin_app(
            control_plane,
            engine_status=known.status,
            admin_token_sha256=digest(ADMIN_TOKEN),
            telemetry=known,
            predictors=predicting,
            actions=AnyAction(),
            daemon_actions=AnyDaemon(),
            replays=Jobs(),
        )
        config = schemathesis.Config.from_dict(CONFIG)
        yield schemathesis.openapi.from_asgi(OPENAPI_PATH, app, headers=HEADERS, config=config)


def _is_sent_as_another(value: object) -> bool:
    """A parameter that is nothing is not sent, and a list of one is sent as what is in it."""
    return value in ({}, [], None) or (isinstance(value, list) and len(value) == 1)


def check_all(schema: schemathesis.BaseSchema, examples: int) -> int:
    """Send `examples` cases to each operation, as many that fit the document as that do not; their number."""
    load_all_checks()
    sent = 0
    failed: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def send(case: schemathesis.Case) -> None:
                nonlocal sent
                if case.query and any(_is_sent_as_another(value) for value in case.query.values()):
                    return
                sent += 1
                case.call_and_validate(headers=HEADERS)

            try:
                send()
            except Unsatisfiable:
                continue  # nothing can be wrong with a call that takes nothing
            except FailureGroup as error:  # all that fails is told, not the first alone
                failed.extend(f"{operation.label}: {one}" for one in error.exceptions)
    assert failed == [], "\n".join(failed)
    return sent


def test_every_operation_keeps_its_promise_when_a_few_cases_are_sent(
    schema: schemathesis.BaseSchema,
) -> None:
    assert check_all(schema, examples=2) > 100


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_operation_keeps_its_promise_when_thousands_of_cases_are_sent(
    schema: schemathesis.BaseSchema,
) -> None:
    assert check_all(schema, examples=30) >= ALL_CASES
