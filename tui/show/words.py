"""Causes of misses and reasons of decisions in words, for the console and for the pages alike."""

from __future__ import annotations

CAUSES = {
    "queued": "waits in the queue",
    "prefill_slow": "its own prefill is slow",
    "retracted": "sent back to wait for want of KV memory",
    "no_split_meets_target": "no split meets its TBT target at this load",
    "slower_than_predicted": "steps take longer than predicted",
    "prefill_between_tokens": "prefill runs alone between its tokens",
    "host_late": "the host is late with what the GPU has done",
    "loop_late": "the daemon reads requests late: it has too little of the CPU",
    "unknown": "the decisions that are kept do not tell why",
}

REASONS = {
    "nothing_to_do": "nothing to do: no request prefills or decodes",
    "wait_for_prefill": "waits for the prefill in flight, since nothing decodes",
    "prefill_alone": "prefill has all SMs, since nothing decodes",
    "decode_alone": "decode has all SMs, since nothing waits to prefill",
    "fixed_split": "the fixed split that the policy was given",
    "decode_bs_rule": "the split follows the decode batch size alone",
    "token_budget": "one batch on all SMs, up to the policy's token budget",
    "best_fit": "the fewest decode SMs whose worst case meets the strictest TBT target",
    "fused_fits": "one batch on all SMs is predicted to meet the TBT target",
    "highest_throughput": "the split of highest predicted throughput that meets the TBT target",
    "prefill_first": "prefill goes before any decode",
    "hold_for_batch": "short prompts are held for a moment, to be prefilled together",
    "predictions_wrong": "predictions have been wrong of late, so a fixed plan takes over",
    "too_long_for_memory": "the prompt is prefilled in chunks, since memory does not hold it whole",
    "tbt_infeasible": "no split meets the strictest TBT target; decode gets all it can",
    "switch_when_drained": "the split changes as soon as the work in flight is done",
    "preempt_when_drained": "a prefill is set aside as soon as its layers in flight are done",
    "preempted_for_shorter": "a shorter prompt overtook a longer one that can wait",
    "resumed": "the prefill that was set aside goes on",
    "prefill_finished": "a prefill that ran beside decode has passed its last layer",
}
