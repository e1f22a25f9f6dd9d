"""A tenant of a strict TBT target beside one of a relaxed one."""
from __future__ import annotations
import sys
import numpy as np
from dataclasses import replace
sys.path.insert(0, "tests/bench")
from tenant_floods import requests, PROFILE
from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.loop.requests import Target

def t(ms): return Target(slo=replace(DEFAULT_SLO, tbt_s=ms/1e3), version=1)

def run(policy, arrivals, targets):
    for i, r in enumerate(arrivals): r.request_id = str(i)
    c = Collector(arrivals, DEFAULT_SLO.tbt_s)
    e = EmulatedEngine(profile=load_profile(PROFILE), policy=policy, observer=c, block_tokens=512)
    e.apply_settings(version=1, policy=policy, slos=targets)
    c.attach(e.token_times)
    drive(e, arrivals, sample_every_s=1.0, on_sample=lambda now_s: None)
    o = c.outcomes()
    new = np.maximum(o.input_tokens - o.reused_tokens, 1)
    ttft = DEFAULT_SLO.ttft_fixed_s + DEFAULT_SLO.ttft_per_1k_new_tokens_s*new/1000
    first = o.finished & (o.ttft_s <= ttft+1e-9)
    tbt = np.array([targets[r.tenant].slo.tbt_s for r in arrivals])
    gap = o.gap_p99_s <= tbt + 1e-9
    return o, first, gap, first & gap

def show(policy, kinds=("summaries","summaries"), rates=(0.5,12.5), ms=(20,200), dur=240):
    a = requests((kinds[0], rates[0]), "a", dur) if rates[0] else []
    b = requests((kinds[1], rates[1]), "b", dur) if rates[1] else []
    both = sorted([*a,*b], key=lambda r: r.arrival_s)
    o, f, g, ok = run(policy, both, {"a": t(ms[0]), "b": t(ms[1])})
    m = np.array([r.tenant=="a" for r in both])
    for n, s in (("strict", m), ("relaxed", ~m)):
        if s.any(): print(f"{policy:16s} {kinds} {rates} {ms} {n:8s} n={s.sum()} good {100*ok[s].mean():.1f} ttft {100*f[s].mean():.1f} gaps {100*g[s].mean():.1f}  ttft p50 {np.median(o.ttft_s[s]):.2f} gap p50/p95 of p99 {np.quantile(o.gap_p99_s[s],.5)*1e3:.1f} {np.quantile(o.gap_p99_s[s],.95)*1e3:.1f}", flush=True)

if __name__ == "__main__":
    import time
    for policy in sys.argv[1:] or ["auto"]:
        for kind in ("summaries","chat"):
            for rates in ((0,12.5),(0.5,0),(0.5,12.5)):
                s=time.time(); show(policy,(kind,kind),rates); print(round(time.time()-s,1),"s")
