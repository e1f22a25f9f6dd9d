"""Stands for vLLM: SGLang's CPU path looks for three of its functions."""
