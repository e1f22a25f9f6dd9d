"""Targets that a router sets for one request, by the headers of llm-d's inference scheduler and one of ours.

They count only from peers that the operator trusts, since a strict TBT target takes SMs from everybody's
prefill. From anybody else the headers are not read.
"""

from __future__ import annotations

import re

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.daemon.httpd.asgi import Scope, header
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import E2E_RANGE_S, TBT_RANGE_S, TTFT_FIXED_RANGE_S, RequestTargets

TTFT_HEADERS = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TBT_HEADERS = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
E2E_HEADERS = ("x-pdmuxd-e2e-ms",)
"""llm-d's present spelling and its former one; the first that is there counts. llm-d has none for answers.

TPOT is a request's mean. Here it becomes the target of every gap; where each gap meets it, the mean does too.
"""

_NUMBER = re.compile(rb"[0-9]{1,9}(\.[0-9]{1,6})?")


def targets_of(scope: Scope) -> RequestTargets | None:
    """The targets that the headers ask for; None if they ask for none. Raises: RequestError 400 naming the
    header."""
    ttft_s = _seconds(scope, TTFT_HEADERS, TTFT_FIXED_RANGE_S)
    tbt_s = _seconds(scope, TBT_HEADERS, TBT_RANGE_S)
    found = RequestTargets(ttft_s=ttft_s, tbt_s=tbt_s, e2e_s=_seconds(scope, E2E_HEADERS, E2E_RANGE_S))
    return None if found == RequestTargets() else found


def _seconds(scope: Scope, names: tuple[str, ...], allowed: tuple[float, float]) -> float | None:
    name = next((each for each in names if header(scope, each.encode()) is not None), None)
    if name is None:
        return None
    given = header(scope, name.encode()) or b""
    value_s = float(given) / 1000.0 if _NUMBER.fullmatch(given) else 0.0
    if not allowed[0] <= value_s <= allowed[1]:
        raise RequestError(
            f"the header `{name}` is wrong: allowed are {to_ms(allowed[0]):g} to {to_ms(allowed[1]):g} ms",
            status=400,
            code="invalid_value",
            param=name,
        )
    return value_s
