"""Which tests of the laboratory are slow."""

from pathlib import Path

SLOW = (
    "test_a_long_prompt_is_served_among_short_ones",
    "test_a_refused_policy_is_told_when_the_engine_says_no",
    "test_a_run_goes_on_where_it_was_when_time_was_up",
    "test_a_run_without_requests_is_refused_when_its_rate_is_too_low_for_its_time",
    "test_a_session_goes_on_where_the_last_one_ended",
    "test_a_step_that_hangs_is_ended_with_its_servers_and_the_next_begins",
    "test_an_engine_stays_up_under_aborts_and_policy_changes",
    "test_every_edit_is_in_force_and_nothing_is_lost_when_the_target_goes_to_and_fro",
    "test_every_run_is_measured_once_when_two_gpus_share_the_work",
    "test_profile_predictors_and_unseen_shapes_are_written_when_an_engine_is_measured",
    "test_the_other_arms_are_measured_when_one_is_refused",
    "test_the_served_device_has_the_engines_splits",
    "test_the_reason_is_one_line_when_the_daemon_does_not_start",
    "test_two_steps_are_worked_off_and_shown_when_the_engine_is_emulated",
)
"""Measurements run from their first line to their last, against a daemon or an engine of their own."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in SLOW and Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
            item.add_marker("e2e")
