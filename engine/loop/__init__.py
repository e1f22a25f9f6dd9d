"""The scheduling loop, one for every device: at each safe point look (`view`), decide (`planner`), carry out
(`launches`), and read what was launched before (`results`, `step_feedback`). `loop` puts them in order.

A device stands behind `port` (queues, batches, launches) and `streams` (events). `engine/sglang` and
`engine/emulator` are two: what they share is here, and here is nothing that knows either.
"""
