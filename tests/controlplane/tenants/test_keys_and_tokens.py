"""Scopes, ends, rotations and uses of keys; admin tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from stores import FakeClock, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import (
    ConflictError,
    InvalidValueError,
    KeyScopeError,
    NotFoundError,
    StaleVersionError,
    UnknownKeyError,
)


@pytest.fixture(autouse=True)
def _tenant(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")


def test_a_key_serves_and_no_more_when_nothing_is_said(control_plane: ControlPlane) -> None:
    key = control_plane.keys.issue("chat")
    assert key.scopes == ("serve",)
    with pytest.raises(KeyScopeError, match=f"key {key.key_id} may not read; its scopes are serve"):
        control_plane.directory.authenticate(key.secret, scope="read")


@pytest.mark.parametrize("scopes", [[], ["all"], ["serve", "serve"], ["serve", "all"]])
def test_scopes_are_refused_when_they_are_none_of_ours(
    control_plane: ControlPlane, scopes: list[str]
) -> None:
    with pytest.raises(InvalidValueError, match="allowed are one or more of serve, read, admin"):
        control_plane.keys.issue("chat", scopes=scopes)


class TestExpiry:
    def test_a_key_opens_nothing_when_its_end_has_come(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        end = clock.now + timedelta(hours=1)
        key = control_plane.keys.issue("chat", expires_at=end)

        directory = control_plane.directory
        assert directory.authenticate(key.secret, now_s=end.timestamp() - 0.001).name == "chat"
        with pytest.raises(UnknownKeyError, match=f"key {key.key_id} has expired"):
            directory.authenticate(key.secret, now_s=end.timestamp())
        assert (key.state(end - timedelta(seconds=1)), key.state(end)) == ("valid", "expired")

    @pytest.mark.parametrize("after", [timedelta(0), timedelta(days=-1), timedelta(days=4000)])
    def test_an_end_is_refused_when_it_is_over_or_far_away(
        self, control_plane: ControlPlane, clock: FakeClock, after: timedelta
    ) -> None:
        for issue in (
            lambda end: control_plane.keys.issue("chat", expires_at=end),
            lambda end: control_plane.admin_tokens.issue("deploy", expires_at=end),
        ):
            with pytest.raises(InvalidValueError, match=r"expires_at is .*; allowed is an instant"):
                issue(clock.now + after)


class TestRotation:
    def test_both_keys_are_good_when_the_old_one_still_overlaps(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        old = control_plane.keys.issue("chat", "laptop", scopes=["serve", "read"])
        new = control_plane.keys.rotate(old.key_id, overlap_s=3600)

        assert (new.label, new.scopes, new.replaces) == ("laptop", ("serve", "read"), old.key_id)
        now_s, end_s = clock.now.timestamp(), clock.now.timestamp() + 3600
        directory = control_plane.directory
        for key in (old, new):
            assert directory.authenticate(key.secret, now_s=now_s).key.key_id == key.key_id
        with pytest.raises(UnknownKeyError):
            directory.authenticate(old.secret, now_s=end_s)
        assert directory.authenticate(new.secret, now_s=end_s).name == "chat"

    def test_the_old_key_ends_no_later_when_it_had_an_end(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        end = clock.now + timedelta(hours=1)
        old = control_plane.keys.issue("chat", expires_at=end)
        new = control_plane.keys.rotate(old.key_id, overlap_s=86400)
        assert control_plane.keys.get(old.key_id).expires_at == end
        # A key that was to end is not followed by one that does not.
        assert new.expires_at is not None
        assert new.expires_at - new.created_at == end - old.created_at

    def test_it_is_a_conflict_when_the_key_was_rotated_before_or_has_ended(
        self, control_plane: ControlPlane
    ) -> None:
        key = control_plane.keys.issue("chat")
        new = control_plane.keys.rotate(key.key_id)
        with pytest.raises(ConflictError, match=f"its successor is {new.key_id}"):
            control_plane.keys.rotate(key.key_id)
        control_plane.keys.revoke(new.key_id)
        with pytest.raises(ConflictError, match="is revoked"):
            control_plane.keys.rotate(new.key_id)
        assert len(control_plane.keys.list("chat")) == 2

    @pytest.mark.parametrize("overlap_s", [-1, 30 * 86400 + 1])
    def test_an_overlap_is_refused_when_it_is_outside_what_is_allowed(
        self, control_plane: ControlPlane, overlap_s: int
    ) -> None:
        key = control_plane.keys.issue("chat")
        with pytest.raises(InvalidValueError, match="overlap_s"):
            control_plane.keys.rotate(key.key_id, overlap_s=overlap_s)


def test_the_last_use_only_grows_when_it_is_noted(control_plane: ControlPlane, clock: FakeClock) -> None:
    key = control_plane.keys.issue("chat")
    before = control_plane.snapshot().version
    late, early = clock.now + timedelta(hours=1), clock.now
    for at in (late, early):
        control_plane.keys.used({key.key_id: at, "key_gone": at})
    assert control_plane.keys.get(key.key_id).last_used_at == late
    assert control_plane.snapshot().version == before


def test_keys_come_in_pages_when_asked(control_plane: ControlPlane) -> None:
    issued = [control_plane.keys.issue("chat").key_id for _ in range(5)]
    first = control_plane.keys.list("chat", limit=2)
    rest = control_plane.keys.list("chat", after=first[-1].key_id)
    assert [key.key_id for key in (*first, *rest)] == issued
    with pytest.raises(NotFoundError):
        control_plane.keys.list("chat", after="key_0")


def test_a_key_is_left_alone_when_another_version_is_expected(control_plane: ControlPlane) -> None:
    key = control_plane.keys.issue("chat")
    for change in (control_plane.keys.revoke, control_plane.keys.rotate):
        with pytest.raises(StaleVersionError, match="read it again"):
            change(key.key_id, expected_version=key.version + 1)
    assert control_plane.keys.get(key.key_id) == control_plane.keys.list()[0]
    assert control_plane.keys.revoke(key.key_id, expected_version=key.version).revoked_at is not None


class TestAdminTokens:
    def test_a_token_is_found_by_its_secret_until_it_is_revoked(self, control_plane: ControlPlane) -> None:
        token = control_plane.admin_tokens.issue("deploy", role="reader")
        found = control_plane.directory.find_admin_token(token.secret)
        assert found is not None
        assert (found.name, found.role) == ("deploy", "reader")
        assert token.secret not in repr((token, control_plane.directory))

        assert control_plane.admin_tokens.revoke("deploy").revoked_at is not None
        assert control_plane.directory.find_admin_token(token.secret) is None

    def test_a_token_opens_nothing_when_its_end_has_come(
        self, control_plane: ControlPlane, clock: FakeClock
    ) -> None:
        end = clock.now + timedelta(hours=1)
        token = control_plane.admin_tokens.issue("deploy", expires_at=end)
        find = control_plane.directory.find_admin_token
        assert find(token.secret, now_s=end.timestamp() - 1) is not None
        assert find(token.secret, now_s=end.timestamp()) is None

    def test_a_name_is_not_given_twice_when_its_token_was_revoked(self, control_plane: ControlPlane) -> None:
        control_plane.admin_tokens.issue("deploy")
        control_plane.admin_tokens.revoke("deploy")
        with pytest.raises(ConflictError, match="not given twice"):
            control_plane.admin_tokens.issue("deploy")

    def test_another_process_knows_it_when_it_refreshes(self, url: str, control_plane: ControlPlane) -> None:
        with opened(url) as other:
            token = control_plane.admin_tokens.issue("deploy")
            assert other.directory.find_admin_token(token.secret) is None
            assert other.refresh()
            assert other.directory.find_admin_token(token.secret) is not None
            assert not other.refresh()
