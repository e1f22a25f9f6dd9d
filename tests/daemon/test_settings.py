from __future__ import annotations

import functools
import operator
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.settings import DeferredSettings, LoadedSettings, Settings, load_settings
from pdmuxd.daemon.settings.example import example_toml
from pdmuxd.daemon.settings.keys import all_keys
from pdmuxd.daemon.settings.layers import OTHER_VARIABLES, parse_assignments
from pdmuxd.daemon.settings.places import SOCKET_NAME_BYTES, SOCKET_PATH_BYTES, make_private
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE
from pdmuxd.engine.sglang.tables import MAX_SPLITS


def load(
    overrides: dict[str, object] | None = None,
    *,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
    search: tuple[Path, ...] = (),
) -> LoadedSettings:
    return load_settings(config, overrides, environ={"HOME": "/home/x"} | (environ or {}), search=search)


def toml(folder: Path, text: str) -> Path:
    path = folder / "pdmuxd.toml"
    path.write_text(text)
    return path


def error_of(overrides: dict[str, object] | None = None, **places: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(overrides, **places)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_hold_when_nothing_is_set() -> None:
    settings = load().settings
    assert (settings.data.host, settings.data.port) == ("127.0.0.1", 8080)
    assert (settings.admin.host, settings.admin.port) == ("127.0.0.1", 8081)
    assert settings.data.max_body_bytes == 16 * 1024 * 1024
    assert settings.data.max_in_flight == 1024
    assert settings.drain_timeout_s == 30
    assert (settings.engine.kind, settings.engine.policy) == ("auto", DEFAULT_POLICY)
    assert settings.engine.profile == DEFAULT_PROFILE
    assert settings.engine.sglang.tp_size == 1
    assert (settings.log.level, settings.log.format) == ("info", "console")


def test_later_layers_win_when_several_set_a_key(tmp_path: Path) -> None:
    config = toml(tmp_path, "drain_timeout_s = 1\n[data]\nport = 1001\nmax_in_flight = 5\nhost = '::1'\n")
    environ = {"PDMUXD_DATA__PORT": "1002", "PDMUXD_DATA__MAX_IN_FLIGHT": "6"}
    loaded = load({"data.port": "1003"}, environ=environ, config=config)
    data = loaded.settings.data
    assert (data.port, data.max_in_flight, data.host) == (1003, 6, "::1")
    assert loaded.settings.drain_timeout_s == 1
    assert loaded.origins["data.port"] == "flag"
    assert loaded.origins["data.max_in_flight"] == "env PDMUXD_DATA__MAX_IN_FLIGHT"
    assert loaded.origins["data.host"] == f"file {config}"
    assert loaded.origins["admin.port"] == "default"
    assert loaded.config_file == config


def test_every_key_has_an_origin_when_loaded() -> None:
    assert set(load().origins) == {key.name for key in all_keys()}


def test_a_flag_counts_as_not_given_when_it_is_none() -> None:
    loaded = load({"data.port": None})
    assert (loaded.settings.data.port, loaded.origins["data.port"]) == (8080, "default")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("data.port", "abc", "allowed is a whole number from 0 to 65535"),
        ("data.port", 65536, "allowed is a whole number from 0 to 65535"),
        ("data.port", True, "allowed is a whole number from 0 to 65535"),
        ("data.port", 80.5, "allowed is a whole number from 0 to 65535"),
        ("data.max_in_flight", 0, "allowed is a whole number from 1 to 100000"),
        ("data.host", "http://here", "allowed is an IP address or a host name, without a port"),
        ("data.host", "999.1.1.1", "allowed is an IP address or a host name, without a port"),
        ("admin.port", 8080, "allowed is another port than that of data.port"),
        ("admin.host", "0.0.0.0", "allowed is a loopback address such as 127.0.0.1, unless admin.allow_rem"),
        ("admin.host", "example.org", "allowed is a loopback address"),
        ("admin.allow_remote", "perhaps", "allowed is true or false"),
        ("drain_timeout_s", -0.5, "allowed is a number from 0 to 3600"),
        ("drain_timeout_s", "nan", "allowed is a number from 0 to 3600"),
        ("drain_timeout_s", "inf", "allowed is a number from 0 to 3600"),
        ("engine.kind", "vllm", "allowed is one of auto, emulator, sglang"),
        ("engine.sglang.tp_size", 0, "allowed is a whole number from 1 to 64"),
        ("engine.sglang.partitions", "112", "allowed is up to 24 splits, such as 112,20;96,36"),
        ("engine.sglang.extra_args", "--enable-lora", "SGLang's flag --enable-lora is not allowed here"),
        ("engine.sglang.extra_args", "--port=1", "SGLang's flag --port is not allowed here: pdmuxd sets it"),
        ("engine.sglang.extra_args", "'", "SGLang's flags cannot be split into words"),
        ("engine.policy", "chunked:1", "give a token budget from 16 to 131072"),
        ("engine.policy", "fifo", "unknown policy 'fifo'; known are "),
        ("engine.restart_backoff_max_s", 0.1, "allowed is at least engine.restart_backoff_initial_s, which"),
        ("engine.model_name", "", "allowed is text"),
        ("log.level", "loud", "allowed is one of debug, info, warning, error"),
        ("state_dir", "", "allowed is a path"),
        ("state_dir", "~no-such-user-here/x", "allowed is a path whose ~ stands for a home directory"),
        ("runtime_dir", "/" + "r" * 80, "so that sockets fit"),
        ("database_url", "pdmuxd.db", "allowed is a database URL such as sqlite:///"),
    ],
)
def test_the_start_is_refused_with_key_value_origin_and_allowed_when_a_value_is_wrong(
    key: str, value: object, allowed: str
) -> None:
    text = error_of({key: value})
    assert text.startswith(f"{key} is ")
    assert "(flag): " in text
    assert allowed in text


def test_as_many_splits_are_allowed_as_an_engine_makes() -> None:
    splits = [f"{8 * n},{8 * n}" for n in range(1, MAX_SPLITS + 1)]
    load({"engine.sglang.partitions": ";".join(splits)})
    text = error_of({"engine.sglang.partitions": ";".join([*splits, "500,500"])})
    assert f"allowed is up to {MAX_SPLITS} splits" in text


def test_a_model_is_asked_for_when_sglang_is_to_serve() -> None:
    text = error_of({"engine.kind": "sglang"})
    assert text.startswith("engine.sglang.model is unset (default): allowed is a model's folder")


def test_a_table_within_a_table_is_read_when_the_file_has_one(tmp_path: Path) -> None:
    config = toml(tmp_path, "[engine.sglang]\nmodel = '/m'\n[engine]\nkind = 'sglang'\n")
    loaded = load(config=config, environ={"PDMUXD_ENGINE__SGLANG__TP_SIZE": "2"})
    assert (loaded.settings.engine.sglang.model, loaded.settings.engine.sglang.tp_size) == ("/m", 2)
    assert loaded.origins["engine.sglang.tp_size"] == "env PDMUXD_ENGINE__SGLANG__TP_SIZE"
    assert "engine.sglang is a group of keys" in error_of({"engine.sglang": "x"})


def test_the_origin_is_named_when_a_wrong_value_is_in_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, "[log]\nlevel = 3\n")
    expected = f"log.level is 3 (file {config}): allowed is one of debug, info, warning, error"
    assert error_of(config=config) == expected


def test_the_variable_is_named_when_a_wrong_value_is_in_the_environment() -> None:
    text = error_of(environ={"PDMUXD_ADMIN__PORT": "-1"})
    assert text == 'admin.port is "-1" (env PDMUXD_ADMIN__PORT): allowed is a whole number from 0 to 65535'


def test_the_others_are_counted_when_several_values_are_wrong() -> None:
    assert error_of({"data.port": "x", "log.level": "y", "log.format": "z"}).endswith(
        "(and 2 more wrong values)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[data]\nprot = 1\n", "unknown key data.prot (file {}): did you mean data.port?"),
        ("drain_timeout = 1\n", "unknown key drain_timeout (file {}): did you mean drain_timeout_s?"),
        ("[datta]\n", "unknown key datta (file {})"),
        ("[zzz.qqq]\nx = 1\n", "unknown key zzz.qqq.x (file {}): `pdmuxd config example` lists all keys"),
        ('"data.port" = 1\n', 'unknown key "data.port" (file {})'),
        ("data = 5\n", "data is 5 (file {}): allowed is a table, [data]"),
        ("[data.port]\nx = 1\n", "unknown key data.port.x (file {})"),
    ],
)
def test_the_start_is_refused_when_a_key_of_the_file_is_unknown(
    tmp_path: Path, text: str, expected: str
) -> None:
    config = toml(tmp_path, text)
    assert expected.format(config) in error_of(config=config)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("PDMUXD_DATA_PORT", "did you mean data.port?"),
        ("PDMUXD_DATA__PROT", "did you mean data.port?"),
        ("PDMUXD_DATA", "give one of them, such as data.host"),
    ],
)
def test_the_start_is_refused_when_a_variable_is_unknown(name: str, hint: str) -> None:
    text = error_of(environ={name: "1"})
    assert f"(env {name})" in text
    assert hint in text


def test_variables_of_clients_are_no_settings_when_they_share_the_prefix() -> None:
    others = dict.fromkeys(OTHER_VARIABLES - {"PDMUXD_CONFIG"}, "x")
    assert set(load(environ=others).origins.values()) == {"default"}


def test_an_unknown_flag_is_refused_when_it_is_set() -> None:
    assert error_of({"log.levle": "info"}) == "unknown key log.levle (flag): did you mean log.level?"


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[data\n", "is not TOML"), (b"\xff\xfe", "is not UTF-8 text")],
)
def test_the_file_is_named_when_it_cannot_be_parsed(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    text = error_of(config=path)
    assert str(path) in text
    assert says in text


def test_the_start_is_refused_when_a_named_file_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert (
        error_of(config=missing) == f"cannot read the configuration file {missing}: No such file or directory"
    )
    assert str(missing) in error_of(environ={"PDMUXD_CONFIG": str(missing)})


def test_the_first_file_found_is_read_when_none_is_named(tmp_path: Path) -> None:
    second, third = tmp_path / "second.toml", tmp_path / "third.toml"
    second.write_text("drain_timeout_s = 2\n")
    third.write_text("drain_timeout_s = 3\n")
    loaded = load(search=(tmp_path / "first.toml", second, third))
    assert (loaded.settings.drain_timeout_s, loaded.config_file) == (2, second)


def test_the_flag_names_the_file_when_the_variable_names_another(tmp_path: Path) -> None:
    by_flag, by_variable = tmp_path / "flag.toml", tmp_path / "variable.toml"
    by_flag.write_text("drain_timeout_s = 2\n")
    by_variable.write_text("drain_timeout_s = 3\n")
    environ = {"PDMUXD_CONFIG": str(by_variable)}
    assert load(config=by_flag, environ=environ).settings.drain_timeout_s == 2
    assert load(environ=environ, search=(by_flag,)).settings.drain_timeout_s == 3


def test_the_admin_plane_may_be_remote_when_it_is_allowed() -> None:
    settings = load({"admin.host": "0.0.0.0", "admin.allow_remote": "true"}).settings
    assert settings.admin.host == "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost", "LOCALHOST."])
def test_the_admin_host_needs_no_permission_when_it_is_loopback(host: str) -> None:
    assert load({"admin.host": host}).settings.admin.host == host


def test_both_planes_may_take_any_free_port_when_both_are_zero() -> None:
    assert load({"data.port": 0, "admin.port": 0}).settings.admin.port == 0


def test_a_password_is_not_shown_when_a_database_url_is_refused_or_printed() -> None:
    assert "hunter2" not in error_of({"database_url": "postgresql:me:hunter2@host"})
    settings = load({"database_url": "postgresql://me:hunter2@host/db"}).settings
    assert "hunter2" not in repr(settings)
    assert settings.resolved_database_url == "postgresql://me:hunter2@host/db"


def test_systemds_directories_are_used_when_it_names_them() -> None:
    loaded = load(environ={"STATE_DIRECTORY": "/var/lib/pdmuxd", "RUNTIME_DIRECTORY": "/run/pdmuxd:/run/b"})
    settings = loaded.settings
    assert settings.resolved_state_dir == Path("/var/lib/pdmuxd")
    assert settings.resolved_runtime_dir == Path("/run/pdmuxd")
    assert settings.resolved_token_file == Path("/var/lib/pdmuxd/admin-token")
    assert settings.resolved_database_url == "sqlite:////var/lib/pdmuxd/pdmuxd.db"
    assert loaded.origins["state_dir"] == "default, $STATE_DIRECTORY"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_STATE_HOME": "/xdg"}, "/xdg/pdmuxd"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/pdmuxd"),
        ({}, "~/.local/state/pdmuxd"),
    ],
)
def test_state_goes_where_xdg_says_when_systemd_says_nothing(environ: dict[str, str], expected: str) -> None:
    assert load(environ=environ).settings.resolved_state_dir == Path(expected).expanduser()


def test_relative_paths_are_taken_from_the_working_directory_when_they_are_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load({"state_dir": ".pdmuxd", "admin.token_file": "t", "runtime_dir": "r"}).settings
    assert settings.resolved_state_dir == tmp_path / ".pdmuxd"
    assert settings.resolved_token_file == tmp_path / "t"
    assert settings.resolved_runtime_dir == tmp_path / "r"


def test_the_database_url_leads_back_to_the_file_when_its_path_has_odd_characters(tmp_path: Path) -> None:
    from sqlalchemy import make_url

    folder = tmp_path / "a b?c%20#d"
    url = load({"state_dir": folder}).settings.resolved_database_url
    assert make_url(url).database == str(folder / "pdmuxd.db")


@given(length=st.integers(min_value=1, max_value=200))
def test_a_socket_always_fits_when_the_state_directory_is_long(length: int) -> None:
    loaded = load({"state_dir": "/" + "d" * length})
    runtime_dir = loaded.settings.resolved_runtime_dir
    assert len(os.fsencode(runtime_dir / ("s" * SOCKET_NAME_BYTES))) <= SOCKET_PATH_BYTES
    moved = runtime_dir != loaded.settings.resolved_state_dir / "run"
    assert moved == bool(loaded.notes)
    assert not moved or str(runtime_dir) in loaded.notes[0]


def test_the_short_directory_differs_when_the_state_directories_differ() -> None:
    one = load({"state_dir": "/" + "a" * 100}).settings.resolved_runtime_dir
    other = load({"state_dir": "/" + "b" * 100}).settings.resolved_runtime_dir
    assert one != other
    assert one == load({"state_dir": "/" + "a" * 100}).settings.resolved_runtime_dir


def test_a_private_directory_is_made_when_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    make_private(path)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_directory_becomes_private_when_others_could_enter_it(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir(mode=0o755)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_link_is_refused_when_it_stands_where_the_private_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SettingsError, match="is not a directory"):
        make_private(tmp_path / "link")


def test_a_directory_of_someone_else_is_refused_when_it_should_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(SettingsError, match="belongs to another user"):
        make_private(tmp_path)


def test_a_file_is_refused_when_it_stands_above_the_private_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot use the directory"):
        make_private(tmp_path / "file" / "run")


def test_nothing_is_read_when_settings_are_deferred_until_they_are_asked_for() -> None:
    calls: list[int] = []

    def read() -> LoadedSettings:
        calls.append(1)
        return load({"data.port": 9})

    deferred = DeferredSettings(read)
    assert calls == []
    assert deferred.settings.data.port == 9
    assert deferred.origins["data.port"] == "flag"
    assert (deferred.config_file, deferred.notes) == (None, ())
    assert calls == [1]


def test_the_environment_is_not_consulted_when_settings_are_built_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PDMUXD_DATA__PORT", "1")
    assert Settings().data.port == 8080


@pytest.mark.parametrize("text", ["data.port", "=1", " =1"])
def test_an_assignment_is_refused_when_it_has_no_key_or_value(text: str) -> None:
    with pytest.raises(SettingsError, match="give key=value"):
        parse_assignments([text])


def test_the_last_assignment_wins_when_a_key_is_set_twice() -> None:
    assert parse_assignments(["a=1", "a=b=c"]) == {"a": "b=c"}


def test_the_example_gives_the_defaults_when_it_is_read(tmp_path: Path) -> None:
    loaded = load(config=toml(tmp_path, example_toml()))
    assert loaded.settings.model_dump() == load().settings.model_dump()
    fixed = {key.name for key in all_keys() if key.default is not None}
    assert {key for key, origin in loaded.origins.items() if origin.startswith("file")} == fixed


def test_the_example_is_valid_when_its_commented_keys_are_taken_too(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("# ") if line.startswith("# ") and " = " in line else line
        for line in example_toml().splitlines()
    ]
    text = "\n".join(lines)
    load(config=toml(tmp_path, text))
    written = tomllib.loads(text)
    for key in all_keys():
        *sections, name = key.name.split(".")
        assert name in functools.reduce(operator.getitem, sections, written)


def test_every_key_says_what_it_is_when_it_is_listed() -> None:
    for key in all_keys():
        assert key.summary.endswith("."), key.name
        assert key.allowed, key.name
        assert (key.unit == "seconds") == key.name.endswith("_s")


def test_the_reference_lists_every_key_with_its_default_when_it_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    for key in all_keys():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{key.name}` |")), "")
        assert row, f"{key.name} is missing"
        assert key.default is None or f"| `{_as_toml(key.default)}` |" in row, row


def _as_toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value) or '""'
    )
