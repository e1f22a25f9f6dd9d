"""The SGLang plugin: a stock server whose scheduler loop decides with `engine/core`."""
