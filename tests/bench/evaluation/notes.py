# ruff: noqa: E501 - sentences, one a line
"""Sentences of the evaluation that no program can write: why a figure differs. Edit these, not the page."""

from __future__ import annotations

CELLS: dict[str, str] = {}
"""By setting, such as `h200-llama-8b mooncake 20ms`: why `auto` is not at least 0.98 of the best other."""

PAPERS: dict[str, str] = {
    "muxwise sharegpt-like": (
        "On prompts of 226 tokens a fused chunk reads the weights once for both phases, and the emulated host's "
        "1.8 ms a split step weighs most; the paper's chunked baseline is bound to 256 tokens, over which we have 1.04."
    ),
    "muxwise long-documents": "Same direction. Over the paper's budget of 256 tokens: 1.37.",
    "muxwise mooncake": (
        "99% within both targets leaves one miss in a hundred: probably bursts of long prompts decide, which miss TTFT under "
        "either policy. The paper raises the rate until TBT fails, and its workload reuses more context."
    ),
    "duet static azure-code": "The paper gives bars, no numbers.",
    "duet goodput azure-conv": (
        "A chunk of up to 8192 tokens beside decode is planned without a contention guard, and steps that land just "
        "above the target miss it; a static split with slack does not."
    ),
    "duet chunked": "Same direction; the emulated chunked baseline pays no host time between steps.",
    "preemption 0.5": (
        "The emulated device is saturated at the paper's rate (12 s a token): queues, not the running prefill, decide."
    ),
    "preemption 0.3": "Still a queue: a preempted long prompt's delay shows in the tail as much as the short one's gain.",
    "preemption 0.15": "Without a queue the direction is the paper's; the long prefills here take 3 s, not tens of seconds.",
    "layerwise 8xa100-llama-70b": (
        "No gain here, probably because launching a whole prefill takes the emulated CPU 24 ms, which overlaps with a decode step of "
        "about that length, and a fed prefill stream ends sooner."
    ),
    "layerwise h200-llama-8b": "As above, with 10 ms of launching.",
    "query 8xa100-llama-70b": "Same direction: the tail, not the median, waits for the last layer.",
    "query h200-llama-8b": "Same direction; long prompts of this trace make the wait longer.",
}
"""By the key of a finding in papers.py: where and why our figure is not the paper's."""

REALITY = (
    "Both profiles are measured. Of these measurements only trace and rate are "
    "known, not the requests; on the very requests of other runs the same emulator is within 15% of the throughput of all 31 arms, "
    "of TBT p99 of 25, of TBT p50 of 23 and of TTFT p50 of 18 "
    "([measurements/h200-emulator.md](measurements/h200-emulator.md)), so much of the difference is which requests came: "
    "the measured runs of Mooncake brought a quarter more input tokens a second. At rates where an arm is at its capacity small "
    "differences of its steps become large ones in queueing time: two H200s differ by 4 to 8%, and fused batches take up to 17% "
    "longer while serving than when measured one at a time. The order of the policies is mostly kept."
)
"""What the differences between the emulator and the measurements come from."""
