"""What a streamed token costs the emulated engine's process; run it as a script.

Starts the process, keeps a number of streams open, and divides the CPU time that the process used (user
and system, from /proc) by the tokens that arrived. Clients run in this process, on another core.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time

import msgspec
import psutil
import uvloop

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}


def body(kind: str, number: int, tokens: int) -> bytes:
    prompt = f"request {number} " * 20
    if kind == "generate":
        sampling = {"max_new_tokens": tokens, "ignore_eos": True}
        return msgspec.json.encode({"text": prompt, "stream": True, "sampling_params": sampling})
    common = {"max_tokens": tokens, "ignore_eos": True, "stream": True}
    if kind == "chat":
        return msgspec.json.encode({"messages": [{"role": "user", "content": prompt}], **common})
    return msgspec.json.encode({"prompt": prompt, **common})


async def stream(port: int, kind: str, number: int, tokens: int) -> int:
    """Bytes read are not parsed: the client must cost less than the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = body(kind, number, tokens)
    head = f"POST {PATHS[kind]} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    events = 0
    tail = b""
    while b"[DONE]" not in tail:
        part = await reader.read(65536)
        if not part:
            raise SystemExit("the stream ended early")
        events += part.count(b"data: ")
        tail = (tail + part)[-32:]
    writer.close()
    await writer.wait_closed()
    return events


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


async def measure(process: subprocess.Popen[str], port: int, kind: str, streams: int, tokens: int) -> None:
    start_s, start_cpu_s = time.monotonic(), cpu_s(process.pid)
    events = sum(await asyncio.gather(*(stream(port, kind, i, tokens) for i in range(streams))))
    wall_s, used_s = time.monotonic() - start_s, cpu_s(process.pid) - start_cpu_s
    total = streams * tokens
    # An event of /generate carries the whole text so far, so tokens that come together are one event.
    assert kind == "generate" or events >= total
    print(
        f"{kind:12} {streams} streams of {tokens}: {total / wall_s:7.0f} tokens/s, "
        f"{1e6 * used_s / total:5.1f} us CPU per token, {100 * used_s / wall_s:4.1f}% of a core; "
        f"at 5000 tokens/s {100 * 5000 * used_s / total:4.1f}%"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=500)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "pdmuxd.engine.emulator.server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                for kind in PATHS:
                    runner.run(measure(process, port, kind, arguments.streams, arguments.tokens))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
