"""An engine process that only does what supervision needs; `--profile` says how it misbehaves.

good               greets, is healthy, acknowledges settings
deaf               acknowledges each version only when it is sent the second time
refusing           refuses settings
crash              prints two lines and exits with code 3
foreign            greets by another link protocol
misfit             says what a person must change and exits with code 2
slow               logs that it loads weights, and never greets
mute               never greets
stubborn           ignores SIGTERM
family             has a child of its own
silent             greets and acknowledges, but sends no heartbeat
stuck              has a request of which it makes nothing
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys

from pdmuxd.engine.core.observing import NOTHING_HIDDEN
from pdmuxd.engine.link.messages import LINK_PROTOCOL, Ack, EngineSettings, EngineStats, Hello
from pdmuxd.engine.link.socket import EngineEnd

ZEROS = dict.fromkeys(EngineStats.__struct_fields__, 0) | {
    "policy": "muxwise",
    "shadow": None,
    "hidden": NOTHING_HIDDEN,
}


def hello(profile):
    return Hello(
        protocol=LINK_PROTOCOL - 1 if profile == "foreign" else LINK_PROTOCOL,
        engine="fake",
        engine_version="0",
        pid=os.getpid(),
        model="fake-model",
        device="none",
        total_sms=8,
        partitions=((8, 0), (0, 8)),
        profile="fake",
        profile_provenance="made up",
        settings_version=0,
    )


async def answer(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def obey(link, profile):
    seen = set()
    while True:
        await link.wait()
        message = link.receive()
        if not isinstance(message, EngineSettings):
            continue
        print(f"settings {message.version}", flush=True)
        if profile == "deaf" and message.version not in seen:
            seen.add(message.version)
            continue
        link.send(Ack(version=message.version, error="no" if profile == "refusing" else None))


async def main(args):
    assert os.environ["PDMUXD_ENGINE_API_KEY"]
    assert "NOTIFY_SOCKET" not in os.environ
    print("fake engine starts", flush=True)
    if args.profile == "crash":
        print("no such device", flush=True)
        sys.exit(3)
    if args.profile == "misfit":
        print("error: there is no model folder /m", flush=True)
        sys.exit(2)
    if args.profile == "slow":
        print("Load weight begin. avail mem=80 GB", flush=True)
    if args.profile == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.profile == "family":
        subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    server = await asyncio.start_server(answer, args.host, args.port)
    link = EngineEnd(args.link)
    if args.profile not in ("mute", "slow"):
        link.send(hello(args.profile))
    uptime_s = 0.0
    async with server, asyncio.TaskGroup() as group:
        group.create_task(obey(link, args.profile))
        while args.profile != "silent":
            uptime_s += 0.1
            stuck = {"running": 1, "steps": 7} if args.profile == "stuck" else {}
            link.send(EngineStats(**ZEROS | {"uptime_s": uptime_s} | stuck))
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--host", "--link", "--profile"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int)
    asyncio.run(main(parser.parse_args()))
