"""Stands for vLLM in tests: SGLang's CPU path looks for three of its functions."""
