"""A request that ends every engine that gets it: two of them, and then it is refused; others are served."""

from pathlib import Path

from poisoning import SETTINGS, check_two_deaths

POISONED = Path(__file__).parents[1] / "support" / "poisoned"


def test_a_poisoned_request_ends_two_engines_and_others_are_served(start, until):
    daemon = start(settings=SETTINGS, environ={"PYTHONPATH": str(POISONED)})
    check_two_deaths(daemon, until, "poison", "code 1")
