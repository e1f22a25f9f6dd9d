"""Puts the report together: header, summary table and figures in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import PurePath
from string import Template

from plotly.offline import get_plotlyjs

from pdmuxd.daemon.replay.document import ReplayDocument
from pdmuxd.daemon.replay.notes import notes
from pdmuxd.daemon.replay.report.colours import policy_colour
from pdmuxd.daemon.replay.report.figures import all_figures
from pdmuxd.daemon.replay.report.plots import Figure
from pdmuxd.daemon.replay.rows import sections
from pdmuxd.daemon.replay.run import PolicyReplay
from pdmuxd.engine.core.slo import Slo


def render(document: ReplayDocument, replays: Sequence[PolicyReplay], slo: Slo) -> str:
    """The whole report as text."""
    figures = all_figures(replays, slo)
    assets = resources.files("pdmuxd.daemon.replay.report") / "assets"
    page = Template((assets / "page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(f"Replay of {PurePath(document.trace.file).name}"),
        lead=escape(_lead(document)),
        notes=_notes(document),
        facts="\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in _facts(document)),
        table_head=_table_head(document),
        table_body=_table_body(document),
        figures="\n".join(_figure(index, figure) for index, figure in enumerate(figures)),
        figure_data=_for_script("[" + ",".join(str(figure.plot.to_json()) for figure in figures) + "]"),
        plotly=get_plotlyjs(),
        css=(assets / "page.css").read_text(encoding="utf-8"),
        js=(assets / "page.js").read_text(encoding="utf-8"),
        command=escape(document.command),
        version=escape(document.pdmuxd_version),
        created_at=escape(document.created_at),
    )


def _lead(document: ReplayDocument) -> str:
    policies = ", ".join(policy.policy for policy in document.policies)
    return f"{document.trace.requests:,} requests on the emulated {document.profile.device}, under {policies}"


def _notes(document: ReplayDocument) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes(document))
    return f'<ul class="note">{items}</ul>' if items else ""


def _facts(document: ReplayDocument) -> list[tuple[str, str]]:
    trace, profile, slo = document.trace, document.profile, document.slo
    return [
        ("Trace", f"{trace.file} ({trace.format}), seed {trace.seed}"),
        (
            "Load",
            f"{trace.requests:,} requests over {trace.arrival_span_s:,.0f} s "
            f"({trace.rate_requests_per_s:.2f} a second), {trace.input_tokens:,} input and "
            f"{trace.output_tokens:,} output tokens",
        ),
        ("Profile", f"{profile.name}: {profile.model} on {profile.device}, {profile.total_sms} SMs"),
        ("Provenance", profile.provenance),
        ("KV pool", f"{profile.kv_capacity_tokens:,} tokens"),
        (
            "Targets",
            f"TTFT {slo.ttft_fixed_ms:g} ms plus {slo.ttft_per_1k_new_tokens_ms:g} ms per 1,000 new tokens; "
            f"TBT {slo.tbt_ms:g} ms; attainment {slo.attainment_ratio * 100:g}%",
        ),
        ("Policies", ", ".join(policy.policy for policy in document.policies)),
    ]


def _table_head(document: ReplayDocument) -> str:
    cells = "".join(
        f'<th scope="col"><span class="swatch" style="background:{policy_colour(index)}"></span>'
        f"{escape(policy.policy)}</th>"
        for index, policy in enumerate(document.policies)
    )
    return f'<tr><th scope="col">Metric</th>{cells}<th class="meaning"></th></tr>'


def _table_body(document: ReplayDocument) -> str:
    lines = []
    span = len(document.policies) + 2
    for section in sections(document):
        lines.append(f'<tr class="section"><th colspan="{span}">{escape(section.title)}</th></tr>')
        for row in section.rows:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
            meaning = f'<td class="meaning">{escape(row.meaning)}</td>'
            lines.append(f'<tr><th scope="row">{escape(row.label)}</th>{cells}{meaning}</tr>')
    return "\n".join(lines)


def _figure(index: int, figure: Figure) -> str:
    title = escape(figure.title)
    return (
        f'<h2>{title}</h2>\n<p class="caption">{escape(figure.caption)}</p>\n'
        f'<figure><div class="plot" id="figure-{index}" role="img" aria-label="{title}"></div></figure>'
    )


def _for_script(json_text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return json_text.replace("<", "\\u003c")
