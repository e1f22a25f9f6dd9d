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
    "- **The rates in order of arrival do not stand**: these runs (2026-11-24) were not doubled. The first seed's rate at 95%, run on for two and four times as long (2026-11-28), good: chunk of 1,024 on chat 100 → 76 → 38%, reasoning 99 → 52 → 26, documents 100 → 89 → 93, tools 96 → 88 → 92, summaries 98 → 99 → 99; `auto` on chat 99 → 97 → 97, summaries 99 → 99 → 97, tools 97 → 97 → 94, documents 94 → 91 → 90, reasoning 96 → 83 → 76; slack order on chat 99 → 98 → 94. So a chunk's rates are too high by more than those of `auto`, but for reasoning. Doubled, `auto` on reasoning holds at most 9.7/s in place of 12.7 (first seed, 300 s, not settled then). `make evaluate` doubles its runs since; of these tables [tools were made again](measurements/README.md#the-ladder-of-tools-on-the-device-as-it-serves), doubled and on the device as it serves.\n"
    "- On short prompts (chat, summaries, reasoning) order gives 6 to 7%; the budget, which fills steps of the best size "
    "([decision 0028](decisions/0028-a-step-of-the-best-size-filled.md)), 5% on chat and summaries and nothing on reasoning. "
    "Before it `auto` held what a chunk of 1,024 in slack order holds on chat and a step of the search (3%) less of summaries. On "
    "long prompts preemption is worth 1.2 to 7 times more on documents and tools at 95%, and splits 14 and 6%; on agents the budget "
    "is worth seven times, splits 97%.\n"
    "- *look-ahead* is worth less than a step of this search: over 40 seeds at one rate 1.1 ± 0.5 points on documents and 0.8 ± 0.5 on "
    "tools, nothing on short prompts ([measured](measurements/README.md#fused-or-split-while-others-wait))."
)
STEPS = (
    "With least slack first, and giving up what is lost, nothing of the step is left over at its end: `auto` and the chunk in slack "
    "order are back at once on chat and summaries, where in order of arrival the step's backlog is served first. In the step `auto` has "
    "9 and 3 points more than that chunk there; before decision 0028 it had 3 and 2 less. Of `tools` only some 16 and 36 requests arrive "
    "in an interval, so that one or two misses are enough for it not to be back: `auto` after three times 1.8/s, of which 92.8% are good "
    "from the step's end on, MuxWise after three times 0.8/s, of which 84.7% are. A chunk of 1,024 does not hold `tools` at 0.8/s by the "
    "table above."
)
CLASSES = (
    "One seed. Six seeds of the loads beside reasoning, before and after [0027](decisions/0027-slots-that-are-short-are-shared.md), with "
    "strict tools and with causes: [slots that ran out](measurements/README.md#slots-that-ran-out). Missed: the relaxed beside summaries "
    "and reasoning, for which the device is too small within 20 ms, and strict chat beside tools, whose gaps are next to layers that are "
    "planned to the target. On the earlier emulated device, which took less for prefills, the relaxed had 100 and 98.3% beside "
    "summaries at 11 and 12.5/s; here 95.0 and 93.5%."
)
"""Of the page of the ladder: below its tables."""

LADDER_NOT_RUN = "`make evaluate OPTIONS='--part ladder'` runs them."
"""What to do about columns of the ladder that are missing."""
