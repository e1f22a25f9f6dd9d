"""What the daemon predicts of other targets, at the load of the last minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pdmuxd.tui.client.outlooks import Outlook
from pdmuxd.tui.client.rest import Refusal, RestClient

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models


async def predict(rest: RestClient, tenant: str, values: Mapping[str, float]) -> Outlook | Refusal:
    """Ask what all four targets would give, for this tenant and the others. Nothing is changed."""
    return await rest.ask(rest.api.preview_slo(tenant, cast("models.SloIn", values)), Outlook)
