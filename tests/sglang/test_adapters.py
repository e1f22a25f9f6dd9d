"""Adapters on the real SGLang: a tenant's answers are those that stock SGLang gives with its adapter."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import adapters
import httpx
import pytest
from sglang_processes import KEY, Link, OurServer, Prompts, StockServer, wrong_answers

from pdmuxd.daemon.process.ports import free_port
from pdmuxd.engine.link.request_tag import TENANT_PARAM

TENANTS = ("plain", "poems", "codes")
"""Those of the last two have an adapter."""


@pytest.fixture(scope="module")
def served(python, model, tmp_path_factory):
    """Flags and environment of a server with two adapters, one of them with pickled weights."""
    folder = tmp_path_factory.mktemp("adapters")
    poems = adapters.pickle_weights(python, adapters.write_adapter(folder / "poems", model, seed=21))
    codes = adapters.write_adapter(folder / "codes", model, seed=22)
    return {
        "flags": (*adapters.FLAGS, "--lora-paths", f"poems={poems}", f"codes={codes}"),
        "variables": adapters.variables(folder / "plugin"),
    }


@pytest.fixture(scope="module")
def prompts():
    return Prompts.make(seed=11, count=60).without_aborts()


@pytest.fixture(scope="module")
def stock(python, model, served, prompts, tmp_path_factory):
    """Stock SGLang's answers, each request naming its tenant's adapter."""
    with StockServer(python, model, tmp_path_factory.mktemp("stock"), **served) as server:
        return asyncio.run(ask(server.base_url, prompts, named=True))


async def ask(base_url, prompts, *, named):
    """Tokens of each answer, the prompts being of each tenant in turn; `named`: by the adapter's name."""
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=base_url, timeout=300, headers=headers, limits=limits) as client:

        async def one(number, prompt):
            await asyncio.sleep(prompt.at_s)
            tenant = TENANTS[number % len(TENANTS)]
            sampling = {"max_new_tokens": prompt.output_tokens, "temperature": 0, "ignore_eos": True}
            body = {"input_ids": list(prompt.tokens), "sampling_params": sampling}
            if not named:
                sampling["custom_params"] = {TENANT_PARAM: tenant}
            elif tenant != TENANTS[0]:
                body["lora_path"] = tenant
            answer = await client.post("/generate", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["output_ids"]

        return list(await asyncio.gather(*(one(*each) for each in enumerate(prompts.all))))


async def test_a_tenants_tokens_are_stock_sglangs_with_its_adapter_when_tenants_decode_together(
    python, model, served, stock, prompts, tmp_path
):
    with OurServer(python, model, tmp_path, policy="auto", **served) as server:
        async with Link(server.link_address) as link:
            answers = await ask(server.base_url, prompts, named=False)
            await link.idle()
            reasons, told = link.reasons, link.hello
    assert wrong_answers(prompts, answers, stock) == {}
    assert told.variant == "adapters of tenants"
    assert "which adapters a batch needs is kept once for both streams" in told.unsplit
    assert sum(reasons.values()) > 0


async def test_the_adapters_matter_when_the_same_prompts_are_asked_without(
    python, model, stock, prompts, tmp_path
):
    with OurServer(python, model, tmp_path, policy="auto") as server:
        plain = await ask(server.base_url, prompts, named=False)
    wrong = wrong_answers(prompts, plain, stock)
    assert {number % len(TENANTS) for number in wrong} == {1, 2}


MAKE_AND_CHECK = """
import json, os, sys
from pathlib import Path
import torch
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.fetching import check_all_adapters

model, good, folder = map(Path, sys.argv[1:])
weights = torch.load(good / "adapter_model.bin", weights_only=True)
told = json.loads((good / "adapter_config.json").read_text())
ran = folder / "ran"


class Runs:
    def __reduce__(self):
        return Path.touch, (ran,)


def wider(name):
    return {key: torch.zeros(8, 999) if name in key else value for key, value in weights.items()}


def check(adapter):
    try:
        return check_all_adapters(str(model), ("--lora-paths", f"chat={adapter}"))[1]
    except SettingsError as error:
        return str(error).replace(str(folder), "")


def made(name, saved, config=told, file="adapter_model.bin", **how):
    (folder / name).mkdir()
    if config is not None:
        (folder / name / "adapter_config.json").write_text(json.dumps(config))
    target = folder / name / file
    target.write_bytes(saved) if isinstance(saved, bytes) else torch.save(saved, target, **how)
    return check(folder / name)


whole = (good / "adapter_model.bin").read_bytes()
said = {
    "good": made("good", weights),
    "old": made("old", weights, _use_new_zipfile_serialization=False),
    "pt": made("pt", weights, file="adapter_model.pt"),
    "runs": made("runs", weights | {"more": Runs()}),
    "cut": made("cut", whole[: len(whole) // 2]),
    "empty": made("empty", b""),
    "list": made("list", [weights]),
    "rank": made("rank", weights, told | {"r": 4}),
    "hidden": made("hidden", wider("q_proj.lora_A")),
    "flat": made("flat", {key: value.flatten() for key, value in weights.items()}),
    "targets": made("targets", weights, told | {"target_modules": ["q_proj"]}),
    "kind": made("kind", weights, told | {"peft_type": "IA3"}),
    "none": made("none", weights, None),
    "training": made("training", weights, file="training_args.bin"),
    "hub": check("org/chat"),
    "no hub": check("org/none"),
}
with (folder / "good" / "adapter_model.bin").open("r+b") as file:
    file.truncate(0)
    file.truncate(1 << 40)
said["huge"] = check(folder / "good")
print(json.dumps([said, ran.exists()]))
"""


def snapshot(cached, name):
    return Path(cached["HF_HOME"], "hub", f"models--{name}", "snapshots", "0" * 40)


def test_what_only_the_engines_process_can_read_is_compared_with_the_model(python, model, tmp_path):
    good = adapters.pickle_weights(python, adapters.write_adapter(tmp_path / "chat", model, seed=1))
    fetched = adapters.write_adapter(tmp_path / "fetched", model, seed=2)
    cached = adapters.put_on_hub(tmp_path / "cache", "org/chat", fetched)
    folder = tmp_path / "made"
    folder.mkdir()
    command = [python, "-P", "-c", MAKE_AND_CHECK, str(model), str(good), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | cached)
    assert done.returncode == 0, done.stderr
    said, ran = json.loads(done.stdout)
    assert not ran
    assert [said.pop(name) for name in ("good", "old", "pt")] == [
        f"chat={folder}/{name}" for name in ("good", "old", "pt")
    ]
    flag = "SGLang's flag --lora-paths: chat's adapter"
    unreadable = "has weights that cannot be read: adapter_model.bin"
    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert said.pop("hub") == f"chat={snapshot(cached, 'org--chat')}"
    missing = said.pop("no hub")
    assert missing.startswith(f"{flag} org/none, which is no folder and was not fetched from the hub: ")
    assert "\n" not in missing
    assert said == {
        "runs": f"{flag} /runs {unreadable}",
        "cut": f"{flag} /cut {unreadable}",
        "empty": f"{flag} /empty {unreadable}",
        "list": f"{flag} /list {unreadable}",
        "huge": f"{flag} /good {unreadable}",
        "rank": f"{flag} /rank says rank 4, and {first} has 8",
        "hidden": f"{flag} /hidden is of another model: {first} has width 999, not 256",
        "flat": f"{flag} /flat is of another kind: {first} has 1 dimensions, not 2",
        "targets": f"{flag} /targets has weights for self_attn.k_proj, which its target_modules do not name",
        "kind": f"{flag} /kind is no LoRA: peft_type of its adapter_config.json is 'IA3'",
        "none": f"{flag} /none has no adapter_config.json that can be read",
        "training": f"{flag} /training has no weights (adapter_model.safetensors)",
    }


def test_the_start_ends_with_one_line_when_an_adapter_of_the_hub_is_of_another_model(python, model, tmp_path):
    config = json.loads((model / "config.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    cached = adapters.put_on_hub(
        tmp_path / "cache", "org/chat", adapters.write_adapter(tmp_path / "chat", other, seed=1)
    )
    for name in (str(model), "org/model"):
        if name == "org/model":
            (tmp_path / "model").mkdir()
            (tmp_path / "model" / "config.json").write_text(json.dumps(config))
            adapters.put_on_hub(tmp_path / "cache", name, tmp_path / "model")
        words = [
            "--model",
            name,
            "--port",
            str(free_port()),
            "--",
            "--device",
            "cpu",
            "--lora-paths=chat=org/chat",
        ]
        command = [python, "-P", "-m", "pdmuxd.engine.sglang", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | cached)
        (line,) = done.stderr.splitlines()
        adapter = snapshot(cached, "org--chat")
        said = f"error: SGLang's flag --lora-paths: chat's adapter {adapter} is of another model: "
        assert line.startswith(said)
        assert done.returncode == 2
