"""Names of attributes: those of the OpenTelemetry semantic conventions where they have one, else our own.

The names stand here as texts: the conventions for generative AI are still in development, and a package that
follows them renames its constants with them.
Source: semantic-conventions-genai 0.1.0 and semantic-conventions 1.45. The `gen_ai.server.*` names are those
of metrics there; spans have no other name for the same.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
STREAM = "gen_ai.request.stream"
CHOICES = "gen_ai.request.choice.count"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"  # noqa: S105 - no password
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"  # noqa: S105
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

METHOD = "http.request.method"
ROUTE = "http.route"
STATUS = "http.response.status_code"
ERROR = "error.type"

TENANT = "pdmuxd.tenant"
REQUEST_ID = "pdmuxd.request.id"
CLIENT_REQUEST_ID = "pdmuxd.request.client_id"
END = "pdmuxd.end"
OUTCOME = "pdmuxd.outcome"
REFUSAL = "pdmuxd.refusal_cause"
TTFT_TARGET = "pdmuxd.slo.ttft_target_s"
TTFT_MET = "pdmuxd.slo.ttft_met"
TBT_TARGET = "pdmuxd.slo.tbt_target_s"
TBT_MAX = "pdmuxd.tbt_max_s"
GAPS_MISSED = "pdmuxd.slo.tbt_gaps_missed"
RETRACTIONS = "pdmuxd.retractions"
