"""Streams on disjoint SMs: green contexts on a GPU, a stand-in with the same interface on a CPU."""
