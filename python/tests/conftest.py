"""Where things are, and a scenario as short as it can be."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def scenario() -> dict[str, Any]:
    """Two TCP connections and a call over 10 Mbit/s."""
    return {
        "name": "mine",
        "title": "Two downloads and a call",
        "duration": "2s",
        "settle": "500ms",
        "sample": "100ms",
        "host": [{"name": "a"}, {"name": "b"}],
        "router": [
            {
                "name": "r",
                "config": {"link": [{"port": "b", "rate": "10Mbit/s"}]},
            }
        ],
        "wire": [{"ends": ["a", "r"], "delay": "5ms"}, {"ends": ["r", "b"]}],
        "traffic": [
            {"name": "down", "from": "a", "to": "b", "kind": "tcp", "flows": 2, "size": "1500B"},
            {"name": "call", "from": "a", "to": "b", "rate": "64kbit/s", "size": "200B"},
        ],
        "expect": [
            {
                "name": "shared",
                "claim": "The downloads share as equals.",
                "that": "jain(flow_goodput(down)) > 0.9",
            }
        ],
    }
