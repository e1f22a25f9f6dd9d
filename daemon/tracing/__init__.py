"""OpenTelemetry spans of requests: of the gateway, and of what the engine says of queue, prefill and decode."""
