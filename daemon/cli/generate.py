"""`pdmuxd generate KIND OUT`: a load of documented shape, as a trace for `replay` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from pdmuxd.daemon.replay.generate import KINDS, generate
from pdmuxd.engine.core.errors import InvalidValueError

EPILOG = "Example: pdmuxd generate tools tools.jsonl --rate 2 --minutes 5"
MAX_REQUESTS = 2_000_000
_KINDS = "; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items())


def register(app: typer.Typer) -> None:
    """Add the `generate` command."""
    app.command("generate", epilog=EPILOG)(write)


def write(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{_KINDS}.", autocompletion=lambda: [*KINDS])],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; it must not exist.")],
    rate: Annotated[float, typer.Option(min=0.001, max=10_000, help="Requests a second, on average.")] = 1.0,
    minutes: Annotated[float, typer.Option(min=0.1, max=1_440, help="How long requests arrive.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other requests.")] = 1,
) -> None:
    """Write a load of documented shape as a trace, where there is no recorded one."""
    if kind not in KINDS:
        raise InvalidValueError("KIND", f"KIND is {kind!r}; allowed is one of {', '.join(KINDS)}")
    if rate * minutes * 60 > MAX_REQUESTS:
        raise InvalidValueError("--rate", f"--rate times --minutes may be {MAX_REQUESTS:,} requests at most")
    requests = generate(kind, rate_per_s=rate, duration_s=minutes * 60, seed=seed)
    if not requests:
        raise InvalidValueError("--rate", "--rate times --minutes must be some requests: none arrived")
    encoder = msgspec.json.Encoder()
    try:
        with out.open("xb") as file:
            for request in requests:
                row: dict[str, object] = {
                    "arrival_ms": round(request.arrival_s * 1000.0, 3),
                    "tenant": request.tenant,
                    "input_tokens": request.input_tokens,
                    "output_tokens": request.output_tokens,
                }
                if request.block_tokens:
                    row |= {"prefix_ids": request.prefix_ids, "block_tokens": request.block_tokens}
                if request.answer_ids:
                    row |= {"answer_ids": request.answer_ids}
                file.write(encoder.encode(row) + b"\n")
    except FileExistsError:
        raise InvalidValueError("OUT", f"OUT: {out} exists; name another file") from None
    except OSError as error:
        raise InvalidValueError("OUT", f"OUT: {out} cannot be written: {error.strerror}") from error
    mean_tokens = sum(request.input_tokens for request in requests) / len(requests)
    typer.echo(
        f"{len(requests)} requests in {minutes:g} min, {mean_tokens:,.0f} prompt tokens on average: {out}"
    )
