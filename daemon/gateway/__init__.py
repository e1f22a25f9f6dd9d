"""The data plane: OpenAI's and SGLang's endpoints, with identity, admission and accounting added."""
