"""`perdure bench` measures; that it has every key is tested, never how fast it was."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.mark.parametrize("effect", ["read_only", "external"])
def test_bench_reports_every_key(effect: str) -> None:
    command = [
        sys.executable,
        "-m",
        "perdure",
        "bench",
        "--runs",
        "10",
        "--steps",
        "3",
        "--concurrency",
        "5",
    ]
    command += ["--alone", "1", "--warm-seconds", "0", "--effect", effect, "--json"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert made.returncode == 0, made.stderr[-4000:]
    found = json.loads(made.stdout)
    wanted = {
        "steps_per_second",
        "actions_per_second",
        "step_ms_p50",
        "step_ms_p99",
        "bytes_per_step",
        "cpu_seconds",
    }
    assert wanted <= set(found)
    assert set(found["cpu_seconds"]) == {"engine", "worker", "kafka"}
    assert all(found[name] > 0 for name in wanted - {"cpu_seconds"})
