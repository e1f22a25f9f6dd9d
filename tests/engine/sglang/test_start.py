"""What a start is told: the environment, the groups to make streams for, what the daemon learns."""

from pathlib import Path

import msgspec
import pytest
from engine_rig import RULES, make_engine_info

from pdmuxd.engine.core.errors import PartitionError, PolicyError, SettingsError
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.sglang.environment import PluginEnvironment, read_environment
from pdmuxd.engine.sglang.partition_tables import make_table, sm_rules_of, stream_groups


def environment(policy="muxwise", partitions=None):
    return PluginEnvironment(policy=policy, link=None, partitions=partitions)


def splits(table):
    return [(split.prefill_sms, split.decode_sms) for split in table.splits]


def test_the_plugin_does_nothing_when_the_server_is_not_ours():
    assert read_environment({}) is None
    assert read_environment({"PDMUXD_POLICY": "", "PDMUXD_LINK": "ipc:///x"}) is None


def test_the_environment_is_read_as_the_launcher_wrote_it():
    found = read_environment(
        {"PDMUXD_POLICY": "auto", "PDMUXD_LINK": "ipc:///x", "PDMUXD_PARTITIONS": "112,20;96, 36"}
    )
    assert found == PluginEnvironment(policy="auto", link="ipc:///x", partitions=((112, 20), (96, 36)))
    assert read_environment({"PDMUXD_POLICY": "auto", "PDMUXD_LINK": ""}) == environment("auto")


@pytest.mark.parametrize(("text", "whole"), [("1", True), ("", False)])
def test_fused_batches_may_be_captured_whole_when_the_launcher_says_so(text, whole):
    found = read_environment({"PDMUXD_POLICY": "auto", "PDMUXD_WHOLE_GRAPHS": text})
    assert found is not None
    assert found.whole_graphs is whole


@pytest.mark.parametrize("text", ["112", "112,20;", "112,x", "112,20,3", "-112,20", "112;20"])
def test_the_variable_and_what_it_holds_are_named_when_it_cannot_be_read(text):
    with pytest.raises(SettingsError, match=r"PDMUXD_PARTITIONS: '.*' is not a split; give prefill SMs"):
        read_environment({"PDMUXD_POLICY": "auto", "PDMUXD_PARTITIONS": text})


def test_decode_has_whole_groups_of_sms_when_the_operator_names_no_splits():
    assert splits(make_table(RULES, environment())) == [
        *((124, 8), (116, 16), (108, 24), (100, 32), (92, 40), (84, 48), (68, 64), (52, 80))
    ]


def test_groups_are_in_steps_of_16_sms_when_sms_come_in_twos():
    ampere = sm_rules_of(108, capability=8)
    assert splits(make_table(ampere, environment()))[:3] == [(92, 16), (76, 32), (60, 48)]


def test_policies_choose_among_the_operators_splits():
    made = make_table(RULES, environment("auto", partitions=((64, 68), (104, 28))))
    context = make_engine_info(table=made).context(None)
    assert splits(build_policy("auto", context).table) == [(104, 28), (64, 68)]


def test_groups_are_the_operators_in_order_when_there_are_some():
    table = make_table(RULES, environment("chunked:64", partitions=((64, 68), (104, 28))))
    assert splits(table) == [(104, 28), (64, 68)]


def test_the_policys_own_split_is_made_as_well():
    table = make_table(RULES, environment("static:40,92", partitions=((104, 28),)))
    assert splits(table) == [(104, 28), (40, 92)]


@pytest.mark.parametrize(("policy", "count"), [("duet", 22), ("drift", 10), ("upstream", 14), ("muxwise", 8)])
def test_all_splits_of_the_policy_that_it_starts_with_are_made(policy, count):
    table = make_table(RULES, environment(policy))
    built = build_policy(policy, make_engine_info(table=table).context(None))
    assert len(stream_groups(built, table)) == len(built.table.groups)
    assert len(table.splits) == count


def test_too_few_sms_for_a_matrix_product_are_refused_before_the_start():
    with pytest.raises(
        PartitionError, match=r"^partition 120,12 is not possible on 132 SMs; allowed are 124,8"
    ):
        make_table(RULES, environment(partitions=((120, 12),)))


@pytest.mark.parametrize(("text", "chosen"), [("", True), ("1", True), ("0", False)])
def test_kernels_are_chosen_for_partitions_unless_the_launcher_says_no(text, chosen):
    found = read_environment({"PDMUXD_POLICY": "auto", "PDMUXD_PARTITION_KERNELS": text})
    assert found is not None
    assert found.partition_kernels is chosen
    assert found.kernels_file is None
    kept = read_environment({"PDMUXD_POLICY": "auto", "PDMUXD_KERNELS_FILE": "/x/kernels.json"})
    assert kept is not None
    assert kept.kernels_file == Path("/x/kernels.json")


def test_more_splits_than_can_be_held_are_refused_with_their_number():
    ampere = sm_rules_of(108, capability=8)
    with pytest.raises(PartitionError, match=r"^policy duet needs 51 SM splits, and with .* at most 24 are"):
        make_table(ampere, environment("duet"))
    engine_info = make_engine_info(table=make_table(ampere, environment()))
    with pytest.raises(PartitionError, match=r"^policy duet needs 51 SM splits; at most 24 are made$"):
        stream_groups(build_policy("duet", engine_info.context(None)), engine_info.table)


def test_a_start_has_what_a_refusal_advised():
    engine_info = make_engine_info()
    duet = build_policy("duet", engine_info.context(None))
    with pytest.raises(PartitionError) as refused:
        stream_groups(duet, engine_info.table)
    advised = str(refused.value).split('"')[1]
    partitions = tuple(tuple(map(int, split.split(","))) for split in advised.split(";"))
    table = make_table(RULES, environment("muxwise", partitions=partitions))
    assert stream_groups(duet, table)


def test_a_split_is_refused_with_the_legal_ones_when_the_device_cannot_make_it():
    with pytest.raises(PartitionError, match=r"101,30 .* 116,16, 112,20, "):
        make_table(RULES, environment(partitions=((101, 30),)))
    with pytest.raises(PolicyError):
        make_table(RULES, environment("nonsense"))


@pytest.mark.parametrize(
    ("capability", "low", "step"), [(6, 1, 1), (7, 2, 2), (8, 4, 2), (9, 8, 8), (12, 8, 8)]
)
def test_the_rules_follow_the_generation_of_the_device(capability, low, step):
    rules = sm_rules_of(108, capability=capability)
    assert (rules.total_sms, rules.min_sms, rules.multiple_sms) == (108, low, step)


def test_the_hello_has_the_groups_that_were_made():
    engine_info = make_engine_info()
    hello = engine_info.hello(version="1.2.3", settings_version=4)
    assert hello.partitions == (
        (132, 0),
        (112, 20),
        (96, 36),
        (80, 52),
        (64, 68),
        (48, 84),
        (32, 100),
        (0, 132),
    )
    assert (hello.engine_version, hello.settings_version, hello.can_measure) == ("1.2.3", 4, True)
    assert hello.kv_capacity_tokens == engine_info.kv_capacity_tokens
    assert (hello.captured_decode_bs, hello.captured_fused_tokens) == ((1, 2, 4), (32, 64))
    assert (hello.roofline, hello.fused_tile_rows) == (engine_info.roofline, engine_info.fused_tile_rows)
    unsplit = make_engine_info(unsplit="for a reason").hello(version="1.2.3", settings_version=4)
    assert unsplit.partitions == ((132, 0), (0, 132)), "a profile then measures no others"
    assert msgspec.structs.replace(unsplit, partitions=hello.partitions, unsplit="") == hello
