"""The GPU's clock and power: asked for beside the loop, and no longer once the driver refuses."""

import threading

from pdmuxd.engine.sglang.gauges import GpuGauges, GpuReading

PATIENCE_S = 30.0


def test_the_newest_reading_is_kept_when_the_driver_answers():
    answers = [GpuReading(clock_mhz=1980, power_w=120.0), GpuReading(clock_mhz=1395, power_w=699.0)]
    asked = threading.Semaphore(0)

    def read():
        asked.release()
        return answers.pop(0) if len(answers) > 1 else answers[0]

    gauges = GpuGauges(read, every_s=0.0)
    assert gauges.newest == GpuReading()
    gauges.start()
    for _ in range(3):
        assert asked.acquire(timeout=PATIENCE_S)
    gauges.stop()
    assert gauges.newest == GpuReading(clock_mhz=1395, power_w=699.0)


def test_the_driver_is_asked_no_more_when_it_refused(caplog):
    asked = []

    def read():
        asked.append(len(asked))
        if len(asked) == 2:
            raise RuntimeError("Not Supported")
        return GpuReading(clock_mhz=1980)

    gauges = GpuGauges(read, every_s=0.0)
    gauges.start()
    gauges.join(PATIENCE_S)
    assert asked == [0, 1]
    assert gauges.newest == GpuReading(), "an old clock must not pass for a new one"
    assert "Not Supported" in caplog.text


def test_nothing_is_asked_when_there_is_no_gpu():
    gauges = GpuGauges(None)
    gauges.start()
    gauges.join(PATIENCE_S)
    assert gauges.newest == GpuReading()
