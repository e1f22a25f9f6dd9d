"""What the daemon predicts of other targets, at the load of the last minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pdmuxd.tui.client.rest import Refusal, RestClient
from pdmuxd.tui.client.wire import OutlookOut

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models


async def predict(rest: RestClient, tenant: str, values: Mapping[str, float | None]) -> OutlookOut | Refusal:
    """Ask what all these targets would give, for this tenant and the others. Nothing is changed."""
    return await rest.ask(rest.api.preview_slo(tenant, cast("models.SloIn", sent(values))), OutlookOut)


def sent(values: Mapping[str, float | None]) -> dict[str, float]:
    """The targets as they are sent: one that is left out is none, and an older daemon does not know it."""
    return {name: value for name, value in values.items() if value is not None}
