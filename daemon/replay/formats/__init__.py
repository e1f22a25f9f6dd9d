"""Readers of the trace formats: Mooncake JSONL, Azure CSV and our own JSONL (docs/replay.md)."""
