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
        "Prefills run whole beside decode, planned without a contention guard: steps that land just above the target "
        "miss it."
    ),
    "duet chunked": "Same direction; the emulated chunked baseline pays no host time between steps.",
    "preemption 0.5": (
        "The emulated device is saturated at the paper's rate: queues, not the running prefill, decide."
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
    "known, not the requests; on the very requests of other runs the same emulator is within 15% of throughput and TBT p50 of "
    "all 31 arms, of TBT p99 of 27 and of TTFT p50 of 24 "
    "([measurements/h200-emulator.md](measurements/h200-emulator.md)), so much of the difference is which requests came: "
    "the measured runs of Mooncake brought a quarter more input tokens a second. At rates where an arm is at its capacity small "
    "differences of its steps become large ones in queueing time: two H200s differ by 4 to 8%, and fused batches take up to 17% "
    "longer while serving than when measured one at a time. The order of the policies is mostly kept."
)
"""What the differences between the emulator and the measurements come from."""

LADDER = (
    "- On short prompts (chat, summaries, reasoning) order and budget are all that counts; on long ones (documents, tools) preemption "
    "is worth two to six times what is below it, splits and look-ahead nothing to a half. The seeds of long loads differ by "
    "more than most rungs: preemption on tools at 95% gains in each (1.23, 2.99, 1.23 to 2.81, 3.56, 3.07), and is not told apart.\n"
    "- *look-ahead* is not told apart on any one load here; on documents and tools no seed loses by it. By good requests at one rate, "
    "six seeds each, it is worth 1.2 ± 0.6 points on documents, 0.5 ± 0.7 on tools, -0.3 ± 1.3 on agents and 2.3 ± 2.5 on documents "
    "on CodeLlama-34B ([look-ahead](measurements/README.md#fused-or-split-while-others-wait)), so it stays.\n"
    "- On documents at 95% `auto` without fused steps holds 3% more, at 99% no more; why was not looked into.\n"
    "- These rungs and the load steps are of the emulated device before it took what was measured "
    "([what changed](measurements/h200-emulator.md)), and of `auto` before [0025](decisions/0025-the-rate-counts-while-others-wait.md)."
)
STEPS = (
    "With least slack first, and giving up what is lost, nothing of the step is left over at its end: `auto` and the chunk in slack "
    "order are back at once on chat and summaries, where in order of arrival the step's backlog is served first. Of `tools` only some 16 "
    "and 36 requests arrive in an interval, so that one or two misses are enough for it not to be back: `auto` after three times 1.8/s, "
    "of which 95.3% are good from the step's end on, MuxWise after three times 0.8/s, of which 88.9% are. A chunk of 1,024 does "
    "not hold `tools` at 0.8/s in two seeds of three by the table above, nor at 1.8/s in any."
)
CLASSES = (
    "Only this table (commit 9f13512) and the line on look-ahead are of the choice in [0025](decisions/0025-the-rate-counts-while-others-wait.md); "
    "the rungs and the load steps were not run again. Before it the relaxed had 97.8% beside summaries at 11/s and 92.5% at 12.5/s, "
    "and the strict 96.9% beside tools. Six seeds of summaries: [while others "
    "wait](measurements/README.md#fused-or-split-while-others-wait). Beside reasoning all 14 misses of the strict are first tokens: 255 "
    "of 256 slots decode, and one is waited for (94.7% before steps used all of a target). 500 s of the first: "
    "[measured before](measurements/README.md#strict-beside-relaxed)."
)
"""Of the page of the ladder: below its tables."""

LADDER_NOT_RUN = (
    "Coding agents at 99% need longer runs: at the best rate above 150 s have some 170 requests, of which one or two "
    "may miss; five take 450 s. Reasoning at 99% was searched on the emulated device that takes what was measured "
    "(2026-11-23, [what changed](measurements/h200-emulator.md)), which is not the one of these tables: 12.1/s for a "
    "chunk of 1,024 in order of arrival, and the same for each rung above it, seed by seed; 10.0/s without fused "
    "steps and for `muxwise:preempt`."
)
"""Why columns of the ladder are missing."""
