"""What a month of history costs: make bench-history.

Fills a database with a month of 20 requests/s as the daemon leaves it (two days by the minute, all by hour
and day) and measures its size, what is asked of it, a write, and the reading back at a start. Two loads: 20
tenants that are always active, and the worst: 5,000 tenants, most requests of a minute each of another one.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

from stores import new_database, opened

from pdmuxd.controlplane.history.batch import NODE, Batch, Series
from pdmuxd.controlplane.history.columns import NAMES, Column, Row, empty, merge
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S, MINUTE_S, STEPS_S, Segment, segments
from pdmuxd.controlplane.history.reading import HistoryReader
from pdmuxd.controlplane.history.writing import HistoryWriter, Retention

REQUESTS_PER_S = 20
START_S = 1_767_225_600  # 2026-01-01
MODEL = "llama-8b"
POOL = 200
"""Different rows; the database does not know that they come again."""
WRITES = 20


def row_of(rng: random.Random, requests: int) -> Row:
    """So many requests of one tenant."""
    row = empty()
    for _ in range(min(requests, 20)):
        prompt, output = rng.randrange(100, 4000), rng.randrange(20, 800)
        late = int(rng.random() < 0.01)
        one = empty()
        for column in (Column.ARRIVALS, Column.ENDED, Column.TTFT_JUDGED, Column.ENGINE_TTFT_JUDGED):
            one[column] = 1
        one[Column.TBT_REQUESTS], one[Column.TTFT_MISSED], one[Column.GOOD] = 1, late, 1 - late
        one[Column.GAPS] = one[Column.ENGINE_GAPS] = one[Column.OUTPUT_TOKENS] = output
        one[Column.GAPS_MISSED] = output // 100
        one[Column.PROMPT_TOKENS], one[Column.CACHED_TOKENS] = prompt, prompt // 3
        one[Column.PREFILL_SM_MS], one[Column.DECODE_SM_MS] = 20 * prompt, 100 * output
        one[Column.WORST_TTFT_MS], one[Column.WORST_GAP_MS] = prompt, 30 + output // 20
        one[Column.WORST_WAIT_MS], one[Column.WAITING], one[Column.IN_FLIGHT] = prompt // 2, 2, 5
        merge(row, one)
    scale = max(1, requests // 20)
    return [value * scale if index < Column.WORST_WAIT_MS else value for index, value in enumerate(row)]


def active(rng: random.Random, tenants: int, step_s: int) -> list[int]:
    """Who has requests in such a time, if each request is of any tenant."""
    requests = REQUESTS_PER_S * step_s
    share = 1.0 - (1.0 - 1.0 / tenants) ** requests
    return rng.sample(range(tenants), max(1, round(share * tenants)))


def rows(rng: random.Random, tenants: int, days: int) -> Iterator[tuple[int, ...]]:
    """All rows of a month, by step."""
    end_s = START_S + days * DAY_S
    kept = Retention()
    for step_s in STEPS_S:
        per_tenant = max(1, REQUESTS_PER_S * step_s // tenants)
        pool = [row_of(rng, per_tenant) for _ in range(POOL)]
        for at in range(max(START_S, end_s - kept.of(step_s)), end_s, step_s):
            for tenant in (*active(rng, tenants, step_s), tenants):
                yield (step_s, tenant + 1, at, *pool[rng.randrange(POOL)])


def fill(path: Path, tenants: int, days: int) -> int:
    """Write a month at once; the number of rows."""
    rng = random.Random(1)
    names = [f"tenant-{number}" for number in range(tenants)] + [NODE]
    marks = ", ".join("?" * (3 + len(NAMES)))
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            "INSERT INTO history_series (id, tenant, tenant_since, model) VALUES (?, ?, ?, ?)",
            ((number + 1, name, 1 if name else 0, MODEL) for number, name in enumerate(names)),
        )
        before = database.total_changes
        columns = ", ".join(("step_s", "series_id", "at", *NAMES))
        database.executemany(
            f"INSERT INTO history ({columns}) VALUES ({marks})",
            rows(rng, tenants, days),
        )
        return database.total_changes - before


def minute_of(rng: random.Random, tenants: int, minute: int) -> Batch:
    """What the daemon writes of a minute."""
    batch, node = Batch(), empty()
    for tenant in active(rng, tenants, MINUTE_S):
        row = row_of(rng, max(1, REQUESTS_PER_S * MINUTE_S // tenants))
        merge(node, row)
        batch.counts[Series(tenant=f"tenant-{tenant}", since_ms=1, model=MODEL), minute] = row
    batch.counts[Series(tenant=NODE, since_ms=0, model=MODEL), minute] = node
    return batch


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Milliseconds, those of the processor, and the answer."""
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    answer = work()
    return 1000 * (time.perf_counter() - started_s), 1000 * (time.process_time() - started_cpu_s), answer


def run(tenants: int, days: int, folder: Path) -> None:
    """Fill one database and print what it costs."""
    url = new_database(folder)
    count = fill(folder / "pdmuxd.db", tenants, days)
    size_mb = (folder / "pdmuxd.db").stat().st_size / 1e6
    print(f"{tenants} tenants, {days} days of {REQUESTS_PER_S} requests/s: {size_mb:.0f} MB in {count} rows")
    end_s = START_S + days * DAY_S
    with opened(url) as control_plane:
        writer, reader = HistoryWriter(control_plane.store), HistoryReader(control_plane.store)
        ids = [series_id for series_id, _ in reader.series_of("tenant-1", since_ms=None)]
        month = segments(START_S, end_s, minutes_kept_since_s=end_s - Retention().of(MINUTE_S))
        last_day = Segment(step_s=MINUTE_S, start_s=end_s - DAY_S, end_s=end_s)
        restored = [
            Segment(step_s=step_s, start_s=end_s - window_s, end_s=end_s)
            for step_s, window_s in ((MINUTE_S, HOUR_S), (HOUR_S, DAY_S), (DAY_S, 30 * DAY_S))
        ]
        by_hour = Segment(step_s=HOUR_S, start_s=START_S, end_s=end_s)
        rng = random.Random(2)
        batches = [minute_of(rng, tenants, end_s + MINUTE_S * number) for number in range(WRITES)]
        took = [timed(lambda batch=batch: writer.write(batch))[:2] for batch in batches]
        took_ms, cpu_ms = (statistics.median(each) for each in zip(*took, strict=True))
        print(f"  a minute's write: {took_ms:.0f} ms ({cpu_ms:.0f} ms of the processor)")
        for name, work in {
            "one tenant, a month by the hour": lambda: reader.read(ids, by_hour),
            "one tenant, a day by the minute": lambda: reader.read(ids, last_day),
            "usage of all tenants, the month": lambda: reader.usage(month, tenant=None, since_ms=None),
            "restoring 1 h, 24 h and 30 d": lambda: [
                past for each in restored for past in reader.judged(each)
            ],
            "dropping a day of minutes": lambda: writer.prune(Retention(), end_s + DAY_S),
        }.items():
            ms, cpu_ms, answer = timed(work)
            found = answer if isinstance(answer, int) else len(answer)
            print(f"  {name}: {ms:.0f} ms ({cpu_ms:.0f} ms of the processor), {found} rows", flush=True)


def main() -> None:
    """Print a paragraph per load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--tenants", type=int, action="append")
    options = parser.parse_args()
    for tenants in options.tenants or [20, 5000]:
        with tempfile.TemporaryDirectory() as folder:
            run(tenants, options.days, Path(folder))


if __name__ == "__main__":
    main()
