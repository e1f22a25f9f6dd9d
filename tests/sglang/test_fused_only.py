"""A model that SGLang cannot prefill layer by layer."""

import pytest
from sglang_processes import Link, OurServer, ask_all

from pdmuxd.daemon.bench.servers.model_folder import write_model_folder

OLMO = {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "torch_dtype": "float32"}


@pytest.fixture(scope="module")
def server(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("olmo")
    model = write_model_folder("tiny", folder / "tiny", **OLMO)
    with OurServer(python, model, folder, flags=("--load-format", "dummy")) as server:
        yield server


async def test_requests_are_served_fused_when_the_model_has_no_layerwise_prefill(server, prompts):
    asked = prompts.first(20)
    async with Link(server.link_address) as link:
        ack, _ = await link.set("static:84,48")
        assert ack.error is None
        answers = await ask_all(server.base_url, asked, speed=4.0)
        assert (await link.idle()).policy == "chunked:512"
        assert link.hello.can_measure is False
    short = [
        n for n, p in enumerate(asked.all) if p.abort_after is None and len(answers[n]) != p.output_tokens
    ]
    assert short == []
    said = [line for line in server.log.splitlines() if "tiny has no layer-wise prefill" in line]
    assert [
        policy for line in said for policy in ("muxwise", "static:84,48") if f"policy {policy} " in line
    ] == [*("muxwise", "static:84,48")]
