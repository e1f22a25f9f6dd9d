"""Whatever operators do, in any order:

1. The settings version grows by exactly one with every change, and with nothing else.
2. A call that fails, or that asks for what is already so, changes nothing.
3. A key opens its tenant until it is revoked or its tenant is gone, and never after that.
4. Edits are numbered 1, 2, 3, ... per tenant and are all kept.
5. Subscribers end with what the database holds.
6. A secret is never in the database's files, in a log record, or in a repr.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from stores import FakeClock, new_database

from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.api_keys import IssuedKey
from pdmuxd.engine.core.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    StaleVersionError,
    TenantDisabledError,
    UnknownKeyError,
)
from pdmuxd.engine.core.slo import Slo

NAMES = st.sampled_from(["a", "b", "chat", "x-1"])
BAD_NAMES = st.sampled_from(["", "A", "-", "a" * 64]) | st.text(max_size=3).map(lambda text: text + " ")
SLOS = st.builds(
    Slo,
    ttft_fixed_s=st.floats(0.001, 600),
    ttft_per_1k_new_tokens_s=st.floats(0, 600),
    tbt_s=st.floats(0.001, 10),
    attainment_ratio=st.floats(0.5, 0.9999),
)
LIMITS = st.integers(1, 65536)


@dataclass
class ExpectedTenant:
    limit: int
    edits: list[Slo]
    enabled: bool = True


@dataclass
class Expected:
    version: int = 0
    tenants: dict[str, ExpectedTenant] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    """Key id to tenant, of the keys that work."""


class Operators(RuleBasedStateMachine):
    keys = Bundle("keys")

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.records: list[logging.LogRecord] = []
        self.logger = logging.getLogger("sqlalchemy.engine")
        self.level = self.logger.level
        self.logger.setLevel(logging.DEBUG)
        self.handler = logging.Handler()
        self.handler.emit = self.records.append  # type: ignore[method-assign]
        logging.getLogger().addHandler(self.handler)
        self.engine = open_database(new_database(Path(self.folder.name)))
        self.control_plane = ControlPlane(self.engine, clock=FakeClock())
        self.heard: DirectorySnapshot = self.control_plane.snapshot()
        self.control_plane.subscribe(self.hear)
        self.expected = Expected()
        self.issued: list[IssuedKey] = []

    def hear(self, snapshot: DirectorySnapshot) -> None:
        assert snapshot.version > self.heard.version
        self.heard = snapshot

    def changed(self) -> None:
        self.expected.version += 1

    @rule(name=NAMES, slo=SLOS, limit=LIMITS)
    def create_tenant(self, name: str, slo: Slo, limit: int) -> None:
        if name in self.expected.tenants:
            with pytest.raises(ConflictError):
                self.control_plane.create_tenant(name, slo, max_in_flight=limit)
            return
        self.control_plane.create_tenant(name, slo, max_in_flight=limit)
        self.expected.tenants[name] = ExpectedTenant(limit, [slo])
        self.changed()

    @rule(name=BAD_NAMES)
    def create_tenant_with_a_bad_name(self, name: str) -> None:
        with pytest.raises(InvalidValueError):
            self.control_plane.create_tenant(name)

    @rule(name=NAMES)
    def delete_tenant(self, name: str) -> None:
        if name not in self.expected.tenants:
            with pytest.raises(NotFoundError):
                self.control_plane.delete_tenant(name)
            return
        self.control_plane.delete_tenant(name)
        del self.expected.tenants[name]
        self.expected.keys = {key: tenant for key, tenant in self.expected.keys.items() if tenant != name}
        self.changed()

    @rule(name=NAMES, enabled=st.none() | st.booleans(), limit=st.none() | st.sampled_from([0, 1, 9, 70000]))
    def update_tenant(self, name: str, enabled: bool | None, limit: int | None) -> None:
        tenant = self.expected.tenants.get(name)
        if tenant is None:
            with pytest.raises(NotFoundError):
                self.control_plane.update_tenant(name, enabled=enabled, max_in_flight=limit)
            return
        if limit in (0, 70000):
            with pytest.raises(InvalidValueError):
                self.control_plane.update_tenant(name, enabled=enabled, max_in_flight=limit)
            return
        self.control_plane.update_tenant(name, enabled=enabled, max_in_flight=limit)
        before = (tenant.enabled, tenant.limit)
        tenant.enabled = tenant.enabled if enabled is None else enabled
        tenant.limit = tenant.limit if limit is None else limit
        if (tenant.enabled, tenant.limit) != before:
            self.changed()

    @rule(name=NAMES, slo=SLOS, off_by=st.sampled_from([None, 0, -1, 1]))
    def set_slo(self, name: str, slo: Slo, off_by: int | None) -> None:
        tenant = self.expected.tenants.get(name)
        if tenant is None:
            with pytest.raises(NotFoundError):
                self.control_plane.set_slo(name, slo)
            return
        expected = None if off_by is None else len(tenant.edits) + off_by
        if off_by in (-1, 1):
            with pytest.raises(StaleVersionError):
                self.control_plane.set_slo(name, slo, expected)
            return
        revision = self.control_plane.set_slo(name, slo, expected)
        tenant.edits.append(slo)
        self.changed()
        assert revision.version == len(tenant.edits)
        assert revision.settings_version == self.expected.version

    @rule(target=keys, name=NAMES, label=st.text(st.characters(categories=["L", "Nd"]), max_size=5))
    def issue_key(self, name: str, label: str) -> str:
        if name not in self.expected.tenants:
            with pytest.raises(NotFoundError):
                self.control_plane.keys.issue(name, label)
            return "key_0000000000000000"
        key = self.control_plane.keys.issue(name, label)
        self.issued.append(key)
        self.expected.keys[key.key_id] = name
        self.changed()
        return key.key_id

    @rule(key_id=consumes(keys) | keys)
    def revoke_key(self, key_id: str) -> None:
        known = {key.key_id for key in self.control_plane.keys.list()}
        if key_id not in known:
            with pytest.raises(NotFoundError):
                self.control_plane.keys.revoke(key_id)
            return
        self.control_plane.keys.revoke(key_id)
        if self.expected.keys.pop(key_id, None) is not None:
            self.changed()

    @rule()
    def restart(self) -> None:
        self.engine.dispose()
        self.engine = open_database(self.engine.url.render_as_string(hide_password=False))
        self.control_plane = ControlPlane(self.engine, clock=FakeClock())
        self.control_plane.subscribe(self.hear)

    @invariant()
    def the_database_is_as_expected(self) -> None:
        snapshot = self.control_plane.snapshot()
        assert snapshot.version == self.expected.version
        assert {
            name: (tenant.enabled, tenant.max_in_flight, tenant.slo, tenant.slo_version)
            for name, tenant in snapshot.tenants.items()
        } == {
            name: (tenant.enabled, tenant.limit, tenant.edits[-1], len(tenant.edits))
            for name, tenant in self.expected.tenants.items()
        }
        assert self.heard == snapshot

    @invariant()
    def keys_open_their_tenant_and_no_other(self) -> None:
        for key in self.issued:
            name = self.expected.keys.get(key.key_id)
            if name is None:
                with pytest.raises(UnknownKeyError):
                    self.heard.authenticate(key.secret)
            elif not self.expected.tenants[name].enabled:
                with pytest.raises(TenantDisabledError):
                    self.heard.authenticate(key.secret)
            else:
                assert self.heard.authenticate(key.secret).name == name

    def teardown(self) -> None:
        try:
            self.check_history()
            self.check_secrets()
        finally:
            logging.getLogger().removeHandler(self.handler)
            self.logger.setLevel(self.level)
            self.engine.dispose()
            self.folder.cleanup()

    def check_history(self) -> None:
        for name, tenant in self.expected.tenants.items():
            history = self.control_plane.list_slo_history(name, 1000)
            assert [one.slo for one in reversed(history)] == tenant.edits
            assert [one.version for one in reversed(history)] == list(range(1, len(tenant.edits) + 1))

    def check_secrets(self) -> None:
        files = [file.read_bytes() for file in Path(self.folder.name).iterdir()]
        self.engine.dispose()
        files += [file.read_bytes() for file in Path(self.folder.name).iterdir()]
        logged = "\n".join(record.getMessage() for record in self.records)
        assert "INSERT INTO" in logged or not self.expected.version
        shown = repr((self.issued, self.heard, self.control_plane.snapshot()))
        for key in self.issued:
            # The part after the prefix and before what is shown on purpose.
            hidden = key.secret[4:-4]
            assert not any(hidden.encode() in content for content in files)
            assert hidden not in logged
            assert hidden not in shown


Operators.TestCase.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
TestOperators = Operators.TestCase
