"""What a killed daemon had in the ledger and not in its use of tokens is counted at the next start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from limited_tenant import DEAR
from stores import new_database, opened

from pdmuxd.controlplane.history.batch import Batch
from pdmuxd.controlplane.history.ledger import Ledger, LedgerEntry
from pdmuxd.controlplane.history.writing import HistoryWriter
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.prices import NANOS_PER_CENT
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.duties.token_use import catch_up


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with opened(new_database(tmp_path)) as made:
        yield made


def entry(number: int, at: datetime, since_ms: int, key_id: str = "another") -> LedgerEntry:
    return LedgerEntry(
        at=int(at.timestamp()),
        request_id=f"r{number}",
        tenant="chat",
        tenant_since=since_ms,
        key_id=key_id,
        model="m",
        outcome="finished",
        status=200,
        input_tokens=10,
        cached_tokens=4,
        output_tokens=100,
        is_good=True,
        duration_ms=None,
        ttft_ms=None,
    )


def cents(*amounts: float) -> int:
    return round(sum(amounts) * NANOS_PER_CENT)


def test_use_is_no_less_than_the_ledger_after_a_kill(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    limited, other, free = (control_plane.keys.issue("chat").key_id for _ in range(3))
    for key_id in (limited, other):
        control_plane.limits.change_key(key_id, {"tokens_per_day": Limit(name="tokens_per_day", value=10**9)})
    since_ms = control_plane.directory.tenants["chat"].since_ms
    control_plane.prices.set("EUR", DEAR.prices)
    now = control_plane.store.clock().astimezone(UTC)
    entries = [entry(number, now, since_ms, (limited, other)[number % 2]) for number in range(4)]
    # As in the limiter, a key without limits has no count of its own.
    entries.append(entry(4, now, since_ms, free))
    others = [entry(8, now - timedelta(days=1), since_ms), entry(9, now, since_ms - 1)]
    HistoryWriter(control_plane.store).write(Batch(requests=entries + others))
    whole, one, two = (UseOf("chat", of, now.date()) for of in (WHOLE_TENANT, limited, other))
    # The last second of one key is missing; of the other an answer was counted whose record was lost.
    stored = Tokens(input_tokens=20, cached_tokens=8, output_tokens=250)
    half = Tokens(input_tokens=20, cached_tokens=8, output_tokens=200, cost_nanos=cents(1, 0.04, 20))
    control_plane.limits.add_use({whole: stored, two: stored})

    for _ in range(2):
        catch_up(control_plane, Ledger(control_plane.store))
        assert control_plane.limits.use_since(now.date()) == {
            whole: Tokens(
                input_tokens=50, cached_tokens=20, output_tokens=500, cost_nanos=cents(1.5, 0.06, 25)
            ),
            one: half,
            two: stored,
        }
