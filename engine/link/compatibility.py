"""Whether predictors are for the engine that introduces itself with a Hello."""

from __future__ import annotations

from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.link.predictors import Predictors


def difference(predictors: Predictors, hello: Hello) -> str | None:
    """The difference between the engine and the one that the predictors are for; None if there is none."""
    if predictors.device_name and predictors.device_name != hello.device:
        return f"it is of a {predictors.device_name}, the engine runs on a {hello.device}"
    if predictors.gpus and predictors.gpus != hello.tensor_parallel.gpus:
        theirs = "1 GPU" if predictors.gpus == 1 else f"{predictors.gpus} GPUs"
        return f"it is of a model on {theirs}, the engine spreads its model over {hello.tensor_parallel.gpus}"
    if predictors.total_sms and predictors.total_sms != hello.total_sms:
        return f"it is of {predictors.total_sms} SMs, the engine has {hello.total_sms}"
    if predictors.model_hash and predictors.model_hash != hello.model_hash:
        theirs, ours = predictors.model_hash[:12], hello.model_hash[:12] or "unknown"
        return f"it is of a model of configuration {theirs}, the engine serves {hello.model}, which is {ours}"
    return None
