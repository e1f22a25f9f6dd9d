"""The control plane on PostgreSQL: as on SQLite, and shared by several nodes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic import command
from postgres_server import PASSWORD, PostgresServer, find_programs
from profiling import measured_profile
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import OperationalError
from stores import FakeClock, opened, slo

from pdmuxd.controlplane.database import opening as database
from pdmuxd.controlplane.database import postgresql
from pdmuxd.controlplane.database.opening import open_database, upgrade
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tables import METADATA
from pdmuxd.engine.core.errors import NotFoundError, StaleVersionError, StoreError, StoreSetupError
from pdmuxd.migrations import alembic_config, head_revision, known_revisions

PROGRAMS = find_programs()
WRITER = Path(__file__).parents[2] / "support" / "killed_writer.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    assert PROGRAMS is not None
    server = PostgresServer(PROGRAMS)
    yield server
    server.close()


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
def nodes(url: str) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """Two daemons' control planes on one database."""
    with ExitStack() as stack:
        yield stack.enter_context(opened(url)), stack.enter_context(opened(url))


class TestSchema:
    def test_nothing_is_lost_when_a_filled_database_goes_down_and_up_again(self, url: str) -> None:
        with opened(url) as control_plane:
            control_plane.create_tenant("chat", slo=slo(0.03))
            secret = control_plane.keys.issue("chat").secret
            control_plane.set_slo("chat", slo(0.02))
            profile_id = control_plane.profiles.add(measured_profile(), origin="imported").profile_id
        engine = connected(url)
        with engine.begin() as connection:
            command.downgrade(alembic_config(connection), "0002")
            command.upgrade(alembic_config(connection), "head")
        engine.dispose()

        with opened(url) as control_plane:
            assert control_plane.directory.authenticate(secret, scope="serve").tenant.name == "chat"
            assert [one.slo.tbt_s for one in control_plane.list_slo_history("chat")] == [0.02, 0.03]
            assert control_plane.profiles.get(profile_id).profile_id == profile_id

    def test_each_revision_goes_down_and_up(self, server: PostgresServer) -> None:
        engine = connected(server.new_database(empty=True))
        with engine.begin() as connection:
            config = alembic_config(connection)
            for revision in sorted(known_revisions()):
                command.upgrade(config, revision)
                command.downgrade(config, "-1")
                command.upgrade(config, revision)
            command.downgrade(config, "base")
            assert inspect(connection).get_table_names() == ["alembic_version"]
        engine.dispose()

    def test_the_tables_equal_the_models(self, url: str) -> None:
        engine = connected(url)
        with engine.connect() as connection:
            command.check(alembic_config(connection, metadata=METADATA))
        engine.dispose()

    def test_nodes_that_upgrade_at_once_do_not_disturb_each_other(self, server: PostgresServer) -> None:
        url = server.new_database(empty=True)
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(upgrade, [url] * 3)) == [head_revision()] * 3

    def test_an_empty_database_names_the_command(self, server: PostgresServer) -> None:
        with pytest.raises(StoreSetupError, match="is empty; create its tables with: pdmuxd db upgrade"):
            open_database(server.new_database(empty=True))


class TestTwoNodes:
    def test_what_one_changes_the_other_sees(self, nodes: tuple[ControlPlane, ControlPlane]) -> None:
        one, other = nodes
        one.create_tenant("chat")
        secret = one.keys.issue("chat").secret
        assert other.refresh()
        assert other.directory.authenticate(secret, scope="serve").tenant.name == "chat"
        assert other.directory == one.directory

    def test_one_edit_wins_when_both_expect_the_same_version(
        self, nodes: tuple[ControlPlane, ControlPlane]
    ) -> None:
        nodes[0].create_tenant("chat")
        for version in range(1, 11):
            barrier = threading.Barrier(2)

            def edit(
                node: ControlPlane, version: int = version, barrier: threading.Barrier = barrier
            ) -> bool:
                barrier.wait()
                try:
                    node.set_slo("chat", slo(0.01 + version / 1000), expected_version=version)
                except StaleVersionError:
                    return False
                return True

            with ThreadPoolExecutor(2) as pool:
                assert sorted(pool.map(edit, nodes)) == [False, True]

    def test_no_change_is_lost_when_both_write_at_once(
        self, nodes: tuple[ControlPlane, ControlPlane]
    ) -> None:
        def create(number: int) -> None:
            nodes[number % 2].create_tenant(f"t{number}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(40)))
        for node in nodes:
            node.refresh()
            assert node.directory.version == 40
            assert set(node.directory.tenants) == {f"t{number}" for number in range(40)}

    def test_a_change_is_refused_when_another_holds_the_lock(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 1)
        engine = connected(url)
        with opened(url) as control_plane, engine.begin() as connection:
            connection.execute(text("SELECT * FROM settings_version FOR UPDATE"))
            with pytest.raises(StoreError, match="lock timeout"):
                control_plane.create_tenant("chat")
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
        engine.dispose()

    def test_instants_are_the_same_on_a_server_with_another_time_zone(self, url: str) -> None:
        clock = FakeClock()
        with opened(url, clock) as control_plane:
            created = control_plane.create_tenant("chat")
            assert control_plane.get_tenant("chat").created_at == created.created_at
        engine = connected(url)
        with engine.connect() as connection:
            assert connection.execute(text("SHOW timezone")).scalar_one() == "UTC"
        engine.dispose()


class TestAServerThatIsAway:
    def test_a_node_goes_on_when_the_server_is_back(self, server: PostgresServer, url: str) -> None:
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            secret = control_plane.keys.issue("chat").secret
            server.stop()
            try:
                with pytest.raises(StoreError) as caught:
                    control_plane.create_tenant("code")
                assert PASSWORD not in str(caught.value)
                with pytest.raises(StoreError):
                    control_plane.refresh()
                # What is known is served on, from memory.
                assert control_plane.directory.authenticate(secret, scope="serve").tenant.name == "chat"
            finally:
                server.start()
            control_plane.create_tenant("code")
            assert set(control_plane.snapshot().tenants) == {"chat", "code"}

    def test_every_acknowledged_change_is_there_when_the_server_crashes(
        self, server: PostgresServer, url: str
    ) -> None:
        kept: list[str] = []

        def write() -> None:
            with opened(url) as control_plane:
                for number in range(10_000):
                    try:
                        control_plane.create_tenant(f"t{number}")
                    except StoreError:
                        return
                    kept.append(f"t{number}")

        writer = threading.Thread(target=write)
        writer.start()
        while len(kept) < 20 and writer.is_alive():
            pass
        server.crash()
        writer.join(60)
        server.start()
        with opened(url) as control_plane:
            found = set(control_plane.snapshot().tenants)
        assert len(kept) >= 20
        assert set(kept) <= found
        # The last may be stored without its answer having come.
        assert len(found - set(kept)) <= 1

    def test_every_acknowledged_change_is_there_when_a_node_is_killed_200_times(self, url: str) -> None:
        ended = subprocess.run(
            [sys.executable, str(WRITER), url, "200"],
            capture_output=True,
            text=True,
            timeout=1100,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "200 kills, " in ended.stdout


class TestAServerThatHangs:
    def test_every_call_ends_while_the_server_is_stopped_and_succeeds_when_it_goes_on(
        self, server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("PING_TIMEOUT_S", "ANSWER_TIMEOUT_S", "CONNECT_TIMEOUT_S"):
            monkeypatch.setattr(postgresql, name, 2)
        with opened(url) as control_plane:
            control_plane.create_tenant("chat")
            server.freeze()
            try:
                for call in (control_plane.store.beat, lambda: control_plane.create_tenant("code")):
                    began_s = time.monotonic()
                    with pytest.raises(StoreError):
                        call()
                    assert time.monotonic() - began_s < 10
            finally:
                server.thaw()
            control_plane.create_tenant("code")
            assert set(control_plane.snapshot().tenants) == {"chat", "code"}

    def test_a_statement_that_the_server_stops_in_ends(
        self, server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgresql, "ANSWER_TIMEOUT_S", 1.0)
        engine = open_database(url)
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            server.freeze()
            try:
                with pytest.raises(OperationalError, match="no answer within 1 s"):
                    connection.execute(text("SELECT 2"))
            finally:
                server.thaw()
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 3")).scalar_one() == 3
        engine.dispose()

    def test_a_slow_statement_is_ended_by_the_server(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgresql, "STATEMENT_TIMEOUT_S", 1)
        engine = open_database(url)
        with engine.connect() as connection, pytest.raises(OperationalError, match="statement timeout"):
            connection.execute(text("SELECT pg_sleep(30)"))
        engine.dispose()


class TestErrors:
    def test_the_password_is_in_no_error(self, server: PostgresServer, url: str) -> None:
        for wrong in (url.replace("test_", "none_"), url.replace("pdmuxd:", "nobody:"), url + "?port=x"):
            with pytest.raises(StoreError) as caught:
                open_database(wrong)
            assert PASSWORD not in f"{caught.value} {caught.value!r}"

    def test_a_missing_driver_says_how_to_get_it(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(StoreSetupError, match=r"pip install 'pdmuxd\[postgresql\]'") as caught:
            open_database(url)
        assert PASSWORD not in str(caught.value)

    def test_an_id_that_no_row_can_have_is_not_found(self, url: str) -> None:
        with opened(url) as control_plane, pytest.raises(NotFoundError):
            control_plane.profiles.get(2**31 - 1)

    def test_backup_names_the_servers_own_tool(self, url: str, tmp_path) -> None:
        with pytest.raises(StoreError, match="pg_dump"):
            database.backup(url, tmp_path / "x.db")


def connected(url: str) -> Engine:
    """As the control plane connects, whatever schema the database has."""
    return database._connect(database._parse(url))
