"""A proxy that says who has logged in with it, and what the audit says of logins."""

from __future__ import annotations

import re

from browsers import Browser
from stores import ADMIN_TOKEN, AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.login_audit import MOST_FAILURES, LoginAudit
from pdmuxd.controlplane.web.proxy import TrustedProxy

HEADER = "X-Forwarded-User"
ADDRESS = "127.0.0.1"
"""From which httpx's transport says that it calls."""


def proxied(control_plane: ControlPlane, *, peer: str = ADDRESS) -> Browser:
    proxy = TrustedProxy(
        sent=lambda scope: scope["client"][0] == peer, header=HEADER, operators=frozenset({"ann@x.org"})
    )
    return Browser(AdminCalls(control_plane, proxy=proxy))


async def test_a_proxys_name_opens_pages_and_operators_may_change(control_plane: ControlPlane) -> None:
    browser = proxied(control_plane)
    control_plane.create_tenant("chat")
    seen = await browser.get("/ui/tenants/chat", **{HEADER: "bob@x.org"})
    assert seen.status_code == 200
    assert "bob@x.org" in seen.text
    assert "May look, not change." in seen.text
    assert "Log out" not in seen.text, "its login is the proxy's"
    assert (await browser.get("/ui/tenants/chat/targets", **{HEADER: "bob@x.org"})).status_code == 403
    form = await browser.get("/ui/policy", **{HEADER: "ann@x.org"})
    token = re.search(r'name="form_token" value="([^"]+)"', form.text)
    assert token is not None
    sent = {"version": "0", "policy": "auto", "do": "set"}
    # Another site can make her browser send a form, and the proxy adds her name to it.
    assert (await browser.post("/ui/policy", sent, **{HEADER: "ann@x.org"})).status_code == 403
    sent["form_token"] = token[1]
    assert (await browser.post("/ui/policy", sent, **{HEADER: "bob@x.org"})).status_code == 403
    assert (await browser.post("/ui/policy", sent, **{HEADER: "ann@x.org"})).status_code == 303
    entry = control_plane.audit(action="policy.set")[0]
    assert (entry.who, entry.who_kind, entry.source) == ("ann@x.org", "proxy", ADDRESS)


async def test_the_header_opens_nothing_when_anyone_else_sends_it(control_plane: ControlPlane) -> None:
    for browser in (proxied(control_plane, peer="10.0.0.1"), Browser(AdminCalls(control_plane))):
        assert (await browser.get("/ui/overview", **{HEADER: "ann@x.org"})).status_code == 303
    browser = proxied(control_plane)
    for path in ("/api/v1/tenants", "/docs", "/"):
        assert (await browser.get(path, **{HEADER: "ann@x.org"})).status_code == 401, "pages alone"


async def test_a_name_that_a_client_may_have_added_to_opens_nothing(control_plane: ControlPlane) -> None:
    browser = proxied(control_plane)
    for name in ("", " ", "a,ann@x.org", "x" * 101, "ann\x7f"):
        assert (await browser.get("/ui/overview", **{HEADER: name})).status_code == 303, name


async def test_logins_are_in_the_audit_with_their_address_and_change_no_setting(
    control_plane: ControlPlane,
) -> None:
    # An application of its own: one that all tests share may know the address's failures already.
    browser = Browser(AdminCalls(control_plane, settings=dict))
    version = control_plane.directory.version
    answers = [await browser.log_in(token) for token in ("wrong", "wrong", ADMIN_TOKEN)]
    assert [one.status_code for one in answers] == [401, 401, 303]
    await browser.post("/ui/logout", {"form_token": await browser.form_token()})
    found = [(one.action, one.who, one.source) for one in control_plane.audit()]
    assert found == [
        ("logout", "admin-token", ADDRESS),
        ("login", "admin-token", ADDRESS),
        ("login.failed", "pdmuxd", ADDRESS),
    ]
    assert "wrong" not in str(control_plane.audit())
    assert control_plane.snapshot().version == control_plane.directory.version == version


async def test_wrong_tokens_fill_no_database(control_plane: ControlPlane) -> None:
    now_s = 0.0
    audit = LoginAudit(control_plane, now_s=lambda: now_s)
    for number in range(3 * MOST_FAILURES):
        await audit.failed({"client": (f"10.0.0.{number}", 1)})
    assert len(control_plane.audit(action="login.failed")) == MOST_FAILURES
    now_s = 60.0
    await audit.failed({"client": ("10.0.0.1", 1)})
    assert len(control_plane.audit(action="login.failed")) == MOST_FAILURES + 1
