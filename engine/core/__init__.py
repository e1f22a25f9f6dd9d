"""The decision core: every scheduling decision, as pure functions over frozen values. It contains no I/O."""
