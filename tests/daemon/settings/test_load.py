from __future__ import annotations

from pathlib import Path

import pytest
from settings_files import error_of, load, toml

from pdmuxd.daemon.settings import DeferredSettings, LoadedSettings, Settings
from pdmuxd.daemon.settings.keys import all_keys
from pdmuxd.daemon.settings.layers import OTHER_VARIABLES, parse_assignments
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE
from pdmuxd.engine.sglang.partition_tables import MAX_SPLITS


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
        ("data.trusted_peers", "10.0.0.0/8,router", "allowed are IP addresses and networks"),
        ("tracing.sample_ratio", 1.5, "allowed is a number from 0 to 1"),
        ("tracing.endpoint", "127.0.0.1:4318", "allowed is an http or https URL of an OTLP/HTTP collector"),
        ("tracing.endpoint", "http://:4318", "allowed is an http or https URL of an OTLP/HTTP collector"),
        ("tracing.endpoint", "http://host:port", "allowed is an http or https URL of an OTLP/HTTP collector"),
        ("tracing.endpoint", "http://me:secret@host", "without a user, query or fragment"),
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
        ("engine.sglang.partitions", "112", "allowed is up to 24 splits, such as 116,16;100,32"),
        ("engine.sglang.extra_args", "--enable-lora", "SGLang's flag --enable-lora is not allowed here"),
        ("engine.sglang.extra_args", "--port=1", "SGLang's flag --port is not allowed here: pdmuxd sets it"),
        ("engine.sglang.extra_args", "'", "SGLang's flags cannot be split into words"),
        ("engine.policy", "chunked:1", "give a token budget from 16 to 131072"),
        ("engine.policy", "fifo", "unknown policy 'fifo'; known are "),
        ("engine.restart_backoff_max_s", 0.05, "allowed is at least engine.restart_backoff_initial_s, which"),
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
        (
            "[engine]\nlearn_fallback = false\n",
            "engine.learn_fallback (file {}) is no longer a setting, take it out: nothing is learned",
        ),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("proxy_header = 'X-Forwarded-User'", "admin.proxy_peers is"),
        ("proxy_peers = '10.0.0.1'", "admin.proxy_header is"),
        ("proxy_header = 'Cookie'\nproxy_peers = '10.0.0.1'", "admin.proxy_header is"),
        ("proxy_header = 'X-Forwarded-User'\nproxy_peers = '0.0.0.0/0'", "at most 256 addresses"),
        ("proxy_header = 'X-Forwarded-User'\nproxy_peers = '10.0.0.0/8'", "at most 256 addresses"),
    ],
)
def test_a_proxy_is_refused_when_anyone_could_name_anyone(tmp_path, text, said):
    with pytest.raises(SettingsError, match=said):
        load(config=toml(tmp_path, f"[admin]\n{text}\n"))


def test_a_proxy_is_taken_when_it_is_named_with_its_header(tmp_path):
    text = "[admin]\nproxy_header = 'X-Forwarded-User'\nproxy_peers = '10.0.0.0/24, ::1'\n"
    assert load(config=toml(tmp_path, text)).settings.admin.proxy_header == "X-Forwarded-User"
