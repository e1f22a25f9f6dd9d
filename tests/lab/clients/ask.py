"""Asks a node with stock clients, each as its own documentation shows it, in an environment that has them.

BASE_URL, KEY and MODEL come from the environment. Prints a line of JSON for each call.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

BASE_URL, KEY, MODEL = (os.environ[name] for name in ("BASE_URL", "KEY", "MODEL"))
V1 = f"{BASE_URL}/v1"
TURNS = [{"role": "user", "content": "Say something."}]
LONG = "word " * 140_000


def litellm_calls() -> dict[str, Callable[[], Any]]:
    import litellm

    def ask(name: str = f"hosted_vllm/{MODEL}", **more: Any) -> Any:
        base = BASE_URL if name.startswith("anthropic/") else V1
        return litellm.completion(model=name, api_base=base, api_key=KEY, **{"messages": TURNS, **more})

    def too_long() -> None:
        try:
            ask(messages=[{"role": "user", "content": LONG}])
        except litellm.ContextWindowExceededError:
            return
        raise AssertionError("answered")

    return {
        "plain": lambda: ask().choices[0].message.content,
        "streamed": lambda: [chunk.choices[0].delta.content for chunk in ask(stream=True)],
        "anthropic": lambda: ask(f"anthropic/{MODEL}", max_tokens=20).choices[0].message.content,
        "text": lambda: (
            litellm.text_completion(
                model=f"text-completion-openai/{MODEL}", prompt="x", api_base=V1, api_key=KEY
            )
            .choices[0]
            .text
        ),
        "context window": lambda: too_long() or "ContextWindowExceededError",
    }


def instructor_calls() -> dict[str, Callable[[], Any]]:
    import instructor
    import openai
    from pydantic import BaseModel

    class User(BaseModel):
        name: str
        age: int

    def ask(mode: Any) -> User:
        client = instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY), mode=mode)
        found = client.chat.completions.create(model=MODEL, messages=TURNS, response_model=User)
        assert isinstance(found, User)
        return found

    return {
        "tools": lambda: ask(instructor.Mode.TOOLS),
        "json_schema": lambda: ask(instructor.Mode.JSON_SCHEMA),
    }


def pydantic_ai_calls() -> dict[str, Callable[[], Any]]:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class City(BaseModel):
        name: str
        people: int

    provider = OpenAIProvider(base_url=V1, api_key=KEY)
    chat = OpenAIChatModel(MODEL, provider=provider)

    def tool() -> str:
        agent = Agent(chat)
        called: list[str] = []

        @agent.tool_plain
        def weather(city: str) -> str:
            called.append(city)
            return "fine"

        said = agent.run_sync("What is the weather?").output
        assert called
        return str(said)

    return {
        "text": lambda: Agent(chat).run_sync("Say something.").output,
        "typed": lambda: Agent(chat, output_type=City).run_sync("Name one.").output.name,
        "tool": tool,
        "responses": lambda: Agent(OpenAIResponsesModel(MODEL, provider=provider)).run_sync("Hi.").output,
    }


def agents_calls() -> dict[str, Callable[[], Any]]:
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=V1, api_key=KEY)

    def ask(kind: Any, *tools: Any) -> str:
        agent = agents.Agent(name="a", model=kind(model=MODEL, openai_client=client), tools=list(tools))
        return str(asyncio.run(agents.Runner.run(agent, "Say something.")).final_output)

    async def streamed(kind: Any) -> str:
        agent = agents.Agent(name="a", model=kind(model=MODEL, openai_client=client))
        run = agents.Runner.run_streamed(agent, "Say something.")
        async for _ in run.stream_events():
            pass
        return str(run.final_output)

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"fine in {city}"

    chat, responses = agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel
    return {
        "chat": lambda: ask(chat),
        "chat, tool": lambda: ask(chat, weather),
        "chat, streamed": lambda: asyncio.run(streamed(chat)),
        "responses": lambda: ask(responses),
        "responses, tool": lambda: ask(responses, weather),
        "responses, streamed": lambda: asyncio.run(streamed(responses)),
    }


def langchain_calls() -> dict[str, Callable[[], Any]]:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class City(BaseModel):
        """A city."""

        name: str

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return city

    chat = ChatOpenAI(model=MODEL, base_url=V1, api_key=KEY)
    claude = ChatAnthropic(model=MODEL, base_url=BASE_URL, api_key=KEY, max_tokens=20)
    calls = chat.bind_tools([weather])
    return {
        "plain": lambda: chat.invoke("Hi.").content,
        "streamed": lambda: [chunk.content for chunk in chat.stream("Hi.")],
        "tools": lambda: calls.invoke("Weather?").tool_calls[0]["name"],
        "structured": lambda: chat.with_structured_output(City).invoke("Name one.").name,
        "by tools": lambda: chat.with_structured_output(City, method="function_calling").invoke("One.").name,
        "responses": lambda: (
            ChatOpenAI(model=MODEL, base_url=V1, api_key=KEY, use_responses_api=True).invoke("Hi.").content
        ),
        "anthropic": lambda: claude.invoke("Hi.").content,
    }


def llama_index_calls() -> dict[str, Callable[[], Any]]:
    from llama_index.llms.openai_like import OpenAILike

    chat = OpenAILike(model=MODEL, api_base=V1, api_key=KEY, is_chat_model=True)
    return {
        "chat": lambda: chat.complete("Hi.").text,
        "streamed": lambda: [part.delta for part in chat.stream_complete("Hi.")],
        "completion": lambda: OpenAILike(model=MODEL, api_base=V1, api_key=KEY).complete("Hi.").text,
    }


def dspy_calls() -> dict[str, Callable[[], Any]]:
    import dspy

    dspy.configure(lm=dspy.LM(f"openai/{MODEL}", api_base=V1, api_key=KEY, cache=False, max_tokens=400))
    return {
        "plain": lambda: dspy.settings.lm("Say something.")[0],
        "json": lambda: json.loads(dspy.settings.lm("Name one.", response_format={"type": "json_object"})[0]),
    }


CLIENTS: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {
    "litellm": litellm_calls,
    "instructor": instructor_calls,
    "pydantic-ai-slim": pydantic_ai_calls,
    "openai-agents": agents_calls,
    "langchain-openai": langchain_calls,
    "llama-index-llms-openai-like": llama_index_calls,
    "dspy": dspy_calls,
}


def main() -> None:
    """Ask with each client."""
    for name, calls in CLIENTS.items():
        for call, ask in calls().items():
            said = {"client": name, "version": version(name), "call": call, "problem": None}
            try:
                assert ask(), "an empty answer"
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                said["problem"] = f"{type(error).__name__}: {str(error)[:160]}"
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
