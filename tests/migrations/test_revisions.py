"""The schema is what the revisions make of an empty database, and nothing else."""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from profiling import measured_profile
from sqlalchemy import Connection, create_engine, inspect, text

from pdmuxd import migrations
from pdmuxd.controlplane.database.opening import open_database, upgrade
from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tables import METADATA, TABLES
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.token_use import Tokens, UseOf
from pdmuxd.migrations import alembic_config, head_revision, known_revisions

REVISIONS = list(ScriptDirectory.from_config(alembic_config()).walk_revisions())


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = create_engine(sqlite_url(tmp_path / "plain.db"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names()) - {"alembic_version"}


def test_the_tables_equal_the_models_when_upgraded_from_empty(connection: Connection) -> None:
    command.upgrade(alembic_config(connection), "head")

    assert tables(connection) == set(METADATA.tables) == {str(one.__tablename__) for one in TABLES}
    assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    command.check(alembic_config(connection, metadata=METADATA))


def test_a_difference_is_found_when_a_column_is_missing(connection: Connection) -> None:
    command.upgrade(alembic_config(connection), "head")
    connection.execute(text("ALTER TABLE tenants DROP COLUMN enabled"))

    assert compare_metadata(MigrationContext.configure(connection), METADATA) != []


def test_nothing_is_left_when_downgraded_to_base(connection: Connection) -> None:
    config = alembic_config(connection)
    command.upgrade(config, "head")

    command.downgrade(config, "base")

    assert tables(connection) == set()


@cache
def upgraded_to(revision: str) -> bytes:
    """A database at a revision; each revision is applied to the one before it, once."""
    (script,) = (one for one in REVISIONS if one.revision == revision)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upgraded.db"
        path.write_bytes(upgraded_to(script.down_revision) if script.down_revision else b"")
        engine = create_engine(sqlite_url(path))
        with engine.connect() as connection:
            command.upgrade(alembic_config(connection), revision)
        engine.dispose()
        return path.read_bytes()


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_a_revision_can_be_taken_back_and_repeated_when_it_was_applied(
    tmp_path: Path, connection: Connection, script: object
) -> None:
    revision = script.revision  # type: ignore[attr-defined]
    before = script.down_revision or "base"  # type: ignore[attr-defined]
    (tmp_path / "plain.db").write_bytes(upgraded_to(revision))
    config = alembic_config(connection)
    after = schema(connection)
    command.downgrade(config, before)
    assert MigrationContext.configure(connection).get_current_revision() != revision

    command.upgrade(config, revision)

    assert schema(connection) == after


def schema(connection: Connection) -> set[str]:
    return set(connection.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")).scalars())


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_a_revision_says_how_to_take_it_back_when_it_changes_something(script: object) -> None:
    tree = ast.parse(Path(script.path).read_text())  # type: ignore[attr-defined]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    assert {"upgrade", "downgrade"} <= set(functions)
    for function in functions.values():
        assert not isinstance(function.body[-1], ast.Pass | ast.Raise), function.name


def test_there_is_one_line_of_revisions_when_they_are_walked() -> None:
    assert len(ScriptDirectory.from_config(alembic_config()).get_heads()) == 1
    assert {script.revision for script in REVISIONS} == known_revisions()
    assert head_revision() in known_revisions()


def test_every_constraint_has_a_name_when_read_from_the_database(connection: Connection) -> None:
    command.upgrade(alembic_config(connection), "head")
    inspector = inspect(connection)

    for table in tables(connection):
        constraints = [
            inspector.get_pk_constraint(table),
            *inspector.get_unique_constraints(table),
            *inspector.get_foreign_keys(table),
            *inspector.get_check_constraints(table),
            *inspector.get_indexes(table),
        ]
        assert all(constraint["name"] for constraint in constraints), (table, constraints)


def test_the_revisions_are_found_when_their_path_holds_a_space_and_a_percent_sign(
    tmp_path: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a path with 100%"
    shutil.copytree(migrations.HERE, odd, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrations, "HERE", odd)

    command.upgrade(alembic_config(connection), "head")

    assert tables(connection) == set(METADATA.tables)


def test_rows_stay_when_the_database_is_upgraded_again(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "again.db")
    upgrade(url)
    engine = open_database(url)
    secret = ControlPlane(engine).create_tenant("chat") and ControlPlane(engine).keys.issue("chat").secret
    engine.dispose()

    assert upgrade(url) == head_revision()

    engine = open_database(url)
    assert ControlPlane(engine).snapshot().authenticate(secret).name == "chat"
    engine.dispose()


def test_rows_that_refer_to_a_table_stay_when_a_revision_rebuilds_it(tmp_path: Path, monkeypatch) -> None:
    """SQLite deletes what refers to a dropped table, unless foreign keys are off."""
    url = sqlite_url(tmp_path / "rebuilt.db")
    upgrade(url)
    engine = open_database(url)
    ControlPlane(engine).create_tenant("chat")
    ControlPlane(engine).keys.issue("chat")
    engine.dispose()
    odd = tmp_path / "migrations"
    shutil.copytree(migrations.HERE, odd, ignore=shutil.ignore_patterns("__pycache__"))
    (odd / "versions" / "v9999_rebuild.py").write_text(REBUILD.format(before=head_revision()))
    monkeypatch.setattr(migrations, "HERE", odd)

    assert upgrade(url) == "9999"

    engine = open_database(url)
    control_plane = ControlPlane(engine)
    assert [tenant.max_in_flight for tenant in control_plane.list_tenants()] == [256]
    assert len(control_plane.keys.list("chat")) == 1
    engine.dispose()


def test_rows_stay_when_each_revision_is_taken_back_and_repeated(tmp_path: Path) -> None:
    """Up, down to the first, and up again on a database with something in every table."""
    url = sqlite_url(tmp_path / "filled.db")
    upgrade(url)
    engine = open_database(url)
    control_plane = ControlPlane(engine)
    for name in ("chat", "batch"):
        control_plane.create_tenant(name, cache_group="mates", max_tbt_cost_ratio=0.1)
        control_plane.keys.issue(name, scopes=["serve", "read"])
    kept = control_plane.keys.issue("chat", "kept")
    reading = control_plane.keys.issue("chat", "reads", scopes=["read"])
    control_plane.admin_tokens.issue("deploy")
    control_plane.limits.change_tenant("chat", {"concurrency": Limit(name="concurrency", value=3)})
    control_plane.limits.change_key(kept.key_id, {"concurrency": Limit(name="concurrency", value=2)})
    control_plane.limits.add_use({UseOf("chat", "", date(2026, 1, 1)): Tokens(input_tokens=1)})
    profile_id = control_plane.profiles.add(measured_profile(), origin="measured").profile_id
    control_plane.profiles.activate(profile_id, None)
    before = control_plane.snapshot()
    engine.dispose()

    plain = create_engine(url)
    with plain.begin() as connection:
        command.downgrade(alembic_config(connection), "0002")
    plain.dispose()
    upgrade(url)

    engine = open_database(url)
    control_plane = ControlPlane(engine)
    after = control_plane.snapshot()
    assert (after.version, list(after.tenants)) == (before.version, list(before.tenants))
    assert after.predictors == before.predictors
    assert control_plane.directory.authenticate(kept.secret).name == "chat"
    # The older schema would have let it serve, so it was ended.
    assert control_plane.keys.get(reading.key_id).revoked_at is not None
    assert control_plane.create_tenant("new").version == before.version + 1
    engine.dispose()


REBUILD = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{before}"


def upgrade():
    with op.batch_alter_table("tenants", recreate="always") as batch:
        batch.alter_column("max_in_flight", type_=sa.BigInteger())


def downgrade():
    with op.batch_alter_table("tenants", recreate="always") as batch:
        batch.alter_column("max_in_flight", type_=sa.Integer())
"""
