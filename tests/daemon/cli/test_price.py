from __future__ import annotations

from pdmuxd.controlplane.services.control_plane import ControlPlane

ALL = ("price", "set", "--input", "0.15", "--cached", "0.03", "--output", "0.60")


def test_prices_are_set_and_removed_one_by_one(pdmuxd, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    assert pdmuxd("price", "show").out == "tokens have no prices\n"
    assert "the first price needs a currency" in " ".join(pdmuxd(*ALL, code=2).err.split())
    assert "every one every one 0.15 0.03 0.6" in " ".join(pdmuxd(*ALL, "--currency", "EUR").out.split())
    out = pdmuxd("price", "set", "--tenant", "chat", "--input", "2", "--output", "3").out
    assert "chat every one 2 2 3 EUR for a million tokens" in " ".join(out.split())
    pdmuxd("price", "set", "--tenant", "chat", "--input", "1", "--output", "3")
    assert len(pdmuxd("price", "show", "--json").json["prices"]) == 2
    (left,) = pdmuxd("price", "remove", "--tenant", "chat", "--json").json["prices"]
    assert left["tenant"] is None
    err = pdmuxd("price", "remove", "--model", "m", code=2).err
    assert "there is no price of tenant every one, model m" in " ".join(err.split())
    assert pdmuxd("price", "remove").out == "tokens have no prices\n"


def test_a_price_that_is_no_number_is_refused(pdmuxd, control_plane: ControlPlane) -> None:
    err = pdmuxd("price", "set", "--input", "1e3", "--output", "1", "--currency", "EUR", code=2).err
    assert "input is '1e3'; allowed are decimal numbers" in " ".join(err.split())
