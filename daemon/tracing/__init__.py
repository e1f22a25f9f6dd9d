"""OpenTelemetry spans of requests: the gateway, and the queue, prefill and decode that the engine reports."""
