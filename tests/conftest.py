"""What holds for all tests: how fast the machine is must not matter, speed is for benchmarks."""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("patient")
