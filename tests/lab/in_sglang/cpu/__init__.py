"""On the path of an SGLang that runs on a CPU: what its CPU path needs of vLLM."""
