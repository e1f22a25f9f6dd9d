from __future__ import annotations

from datetime import timedelta

import pytest

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import UnknownKeyError


@pytest.fixture(params=["through the daemon", "on the database"], autouse=True)
def way(request: pytest.FixtureRequest, control_plane: ControlPlane) -> str:
    """Every command does the same with and without a daemon."""
    if request.param == "through the daemon":
        request.getfixturevalue("daemon")
    return request.param


def test_it_is_said_that_no_daemon_runs_when_none_does(pdmuxd, way: str) -> None:
    said = f"no daemon runs on {pdmuxd.state}; working on the database directly\n"
    assert pdmuxd("tenant", "list").err == ("" if way == "through the daemon" else said)


def test_a_tenant_is_made_with_its_targets_when_created(pdmuxd, control_plane: ControlPlane) -> None:
    result = pdmuxd("tenant", "create", "chat", "--tbt-ms", "40", "--max-in-flight", "7")

    tenant = control_plane.get_tenant("chat")
    assert (tenant.slo.tbt_s, tenant.slo.ttft_fixed_s, tenant.max_in_flight) == (0.04, 1.0, 7)
    assert "TBT            40 ms" in result.out
    assert "pdmuxd tenant key issue chat" in result.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["A"], 'error: name is "A"; allowed are 1 to 63 characters of a-z, 0-9 and -, the first not a -\n'),
        (["a", "--tbt-ms", "0"], "error: tbt_ms is 0; allowed are 1 to 10000\n"),
        (["a", "--attainment", "99"], "error: attainment_ratio is 99; allowed are 0.5 to 0.9999\n"),
        (["a", "--max-in-flight", "0"], "error: max_in_flight is 0; allowed are 1 to 65536\n"),
    ],
)
def test_one_line_names_what_is_allowed_when_a_value_is_wrong(
    pdmuxd, control_plane: ControlPlane, options: list[str], said: str
) -> None:
    assert pdmuxd("tenant", "create", *options, code=2).err.endswith(said)
    assert control_plane.list_tenants() == []


def test_a_second_tenant_is_refused_when_the_name_is_taken(pdmuxd) -> None:
    pdmuxd("tenant", "create", "chat")
    assert pdmuxd("tenant", "create", "chat", code=2).err.endswith(
        "error: there is already a tenant 'chat'\n"
    )


def test_all_are_listed_when_there_are_several(pdmuxd, control_plane: ControlPlane) -> None:
    assert pdmuxd("tenant", "list").out == "there are no tenants\n"
    for name in ("b", "a"):
        control_plane.create_tenant(name)

    assert [one["name"] for one in pdmuxd("tenant", "list", "--json").json] == ["a", "b"]
    table = pdmuxd("tenant", "list").out
    assert [line.split()[:5] for line in table.splitlines() if " yes " in line] == [
        ["a", "yes", "256", "standard", "1"],
        ["b", "yes", "256", "standard", "1"],
    ]


def test_class_and_share_change_when_they_are_set(pdmuxd, control_plane: ControlPlane) -> None:
    pdmuxd("tenant", "create", "chat", "--class", "interactive", "--max-wait-ms", "9000")
    out = pdmuxd("tenant", "set", "chat", "--weight", "2.5", "--late-action", "refuse").out
    for line in (("class", "interactive"), ("weight", "2.5"), ("longest", "wait", "9000", "ms")):
        assert " ".join(line) in " ".join(out.split())
    tenant = control_plane.get_tenant("chat")
    assert (tenant.priority_class, tenant.weight, tenant.max_wait_ms) == ("interactive", 2.5, 9000)
    assert pdmuxd("tenant", "set", "chat", "--max-wait-ms", "none", "--json").json["max_wait_ms"] is None
    entry = control_plane.audit(tenant="chat", limit=1)[0]
    assert "10% of all prefill time" in pdmuxd("tenant", "set", "chat", "--max-tbt-cost", "0.1").out
    assert control_plane.get_tenant("chat").max_tbt_cost_ratio == 0.1
    for wrong in ("1.1", "nan", "-1", "much"):
        refused = pdmuxd("tenant", "set", "chat", f"--max-tbt-cost={wrong}", code=2)
        assert f"is '{wrong}'; allowed are a number from 0 to 1, or none" in " ".join(refused.err.split())
    pdmuxd("tenant", "set", "chat", "--max-tbt-cost", "none")
    assert control_plane.get_tenant("chat").max_tbt_cost_ratio is None
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["max_wait_ms"], entry.after["max_wait_ms"]) == (9000, None)


def test_aliases_of_the_model_are_those_that_were_given_last(pdmuxd, control_plane: ControlPlane) -> None:
    pdmuxd("tenant", "create", "chat")
    assert "model aliases claude-*, gpt-4o" in " ".join(
        pdmuxd("tenant", "alias", "chat", "claude-*", "gpt-4o").out.split()
    )
    assert control_plane.get_tenant("chat").model_aliases == ("claude-*", "gpt-4o")
    refused = pdmuxd("tenant", "alias", "chat", "*", code=2).err
    assert "allowed are up to 16 names" in " ".join(refused.split())
    assert "give either names or --none" in " ".join(pdmuxd("tenant", "alias", "chat", code=2).err.split())
    pdmuxd("tenant", "alias", "chat", "--none")
    assert control_plane.get_tenant("chat").model_aliases == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give at least one of the options"),
        (["--class", "urgent"], 'priority_class is "urgent"; allowed are interactive, standard and batch'),
        (["--weight", "0"], "weight is 0; allowed are 0.01 to 100"),
        (["--max-wait-ms", "soon"], "--max-wait-ms is 'soon'; allowed are a whole number, or none"),
    ],
)
def test_nothing_is_set_when_an_option_is_wrong(
    pdmuxd, control_plane: ControlPlane, options: list[str], said: str
) -> None:
    before = control_plane.create_tenant("chat")
    assert said in " ".join(pdmuxd("tenant", "set", "chat", *options, code=2).err.split())
    assert control_plane.get_tenant("chat") == before


def test_keys_are_shown_with_their_tenant_when_asked(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    assert "it has no API keys" in pdmuxd("tenant", "show", "chat").out
    key = control_plane.keys.issue("chat", "[red]laptop")

    out = pdmuxd("tenant", "show", "chat").out
    assert key.key_id in out
    assert "[red]laptop" in out
    shown = pdmuxd("tenant", "show", "chat", "--json").json
    assert (shown["name"], [one["key_id"] for one in shown["keys"]]) == ("chat", [key.key_id])


def test_a_tenant_is_switched_when_enabled_disabled_or_limited(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    assert pdmuxd("tenant", "disable", "chat", "--json").json["enabled"] is False
    assert not control_plane.get_tenant("chat").enabled
    assert "enabled        yes" in pdmuxd("tenant", "enable", "chat").out
    assert pdmuxd("tenant", "limit", "chat", "9", "--json").json["max_in_flight"] == 9


class TestDelete:
    def test_nothing_is_deleted_when_the_answer_is_no(
        self, pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        control_plane.create_tenant("chat")
        monkeypatch.setattr(
            "typer.confirm", lambda *_, **__: (_ for _ in ()).throw(__import__("typer").Abort())
        )
        pdmuxd("tenant", "delete", "chat", code=1)
        assert control_plane.get_tenant("chat")

    def test_nothing_is_asked_when_yes_is_given(self, pdmuxd, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        assert pdmuxd("tenant", "delete", "chat", "--yes").out == "deleted tenant chat\n"
        assert control_plane.list_tenants() == []

    def test_it_is_said_when_there_is_no_such_tenant(self, pdmuxd) -> None:
        for name in ("nobody", "a/b", "..", "A"):
            err = pdmuxd("tenant", "delete", name, "--yes", code=2).err
            assert err.splitlines()[-1].startswith("error: ")


class TestKeys:
    def test_the_secret_alone_is_on_its_line_when_issued(self, pdmuxd, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        result = pdmuxd("tenant", "key", "issue", "chat", "--label", "laptop")
        secret = result.out.splitlines()[-1]
        assert control_plane.snapshot().authenticate(secret).name == "chat"
        assert result.err.endswith("never shown again.\n")

    def test_the_secret_is_in_the_json_when_asked_for(self, pdmuxd, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        secret = pdmuxd("tenant", "key", "issue", "chat", "--json").json["secret"]
        assert control_plane.snapshot().authenticate(secret).name == "chat"

    def test_a_key_opens_nothing_when_revoked(self, pdmuxd, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        key = control_plane.keys.issue("chat")
        assert "revoked" in pdmuxd("tenant", "key", "revoke", key.key_id).out
        with pytest.raises(UnknownKeyError):
            control_plane.snapshot().authenticate(key.secret)
        (listed,) = pdmuxd("tenant", "key", "list", "chat", "--json").json
        assert listed["revoked_at"] is not None
        assert key.key_id in pdmuxd("tenant", "key", "list", "chat").out

    def test_the_old_secret_is_good_for_the_overlap_when_rotated(
        self, pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        control_plane.create_tenant("chat")
        key = control_plane.keys.issue("chat", "laptop")
        new = pdmuxd("tenant", "key", "rotate", key.key_id, "--overlap", "2h", "--json").json
        assert (new["replaces"], new["label"]) == (key.key_id, "laptop")
        old = control_plane.keys.get(key.key_id)
        assert old.expires_at is not None
        assert old.expires_at - control_plane.keys.get(new["key_id"]).created_at == timedelta(hours=2)
        said = pdmuxd("tenant", "key", "rotate", key.key_id, "--overlap", "soon", code=2).err
        assert "--overlap is 'soon'; allowed are a number with s, m, h, d or w" in said

    def test_scopes_and_an_end_are_kept_when_given(self, pdmuxd, control_plane: ControlPlane) -> None:
        control_plane.create_tenant("chat")
        words = ["--scope", "serve", "--scope", "read", "--expires", "500d"]
        pdmuxd("tenant", "key", "issue", "chat", *words)
        (key,) = control_plane.keys.list("chat")
        assert key.scopes == ("serve", "read")
        assert key.expires_at is not None
        assert "allowed are" in pdmuxd("tenant", "key", "issue", "chat", "--scope", "all", code=2).err

    def test_it_is_said_when_there_is_no_such_tenant_or_key(self, pdmuxd) -> None:
        for words in (["issue", "nobody"], ["list", "nobody"], ["revoke", "key_0"]):
            assert "error: there is no " in pdmuxd("tenant", "key", *words, code=2).err
