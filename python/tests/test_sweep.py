"""Sweeps: on all cores, in parts, beyond one machine."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import evenkeel
import polars as pl
import pyarrow as pa
import pytest


@pytest.fixture
def sweep(root: Path) -> dict[str, Any]:
    """Two queue lengths, two seeds."""
    return {
        "name": "mine",
        "title": "Queue length and delay",
        "scenario": str(root / "scenarios/wfq-altq/fig3.toml"),
        "seeds": [1, 2],
        "duration": "3s",
        "fixed": {
            "step": [],
            "settle": "1s",
            "traffic[from-h1].stop": "3s",
            "traffic[from-h3].stop": "3s",
        },
        "vary": [
            {
                "name": "limit",
                "set": "router[r1].config.link[sink].discipline.limit",
                "values": [10, 100],
            }
        ],
        "measure": {"delay": "delay(class1)@start"},
    }


def test_a_sweep_goes_on_where_it_stopped(sweep: dict[str, Any], tmp_path: Path) -> None:
    first = evenkeel.sweep(sweep, tmp_path / "one", shard="1/2")
    assert (first.tasks, first.new, first.missing) == (4, 2, [1, 3])
    whole = evenkeel.sweep(sweep, tmp_path / "one", jobs=2)
    assert (whole.kept, whole.new, whole.missing, whole.failed) == (2, 2, [], [])
    table = pl.DataFrame(whole.measures).sort("limit", "seed")
    assert table["limit"].to_list() == [10, 10, 100, 100] and table["seed"].to_list() == [1, 2] * 2
    short, long = (table.filter(pl.col("limit") == limit)["delay"].mean() for limit in (10, 100))
    assert long > 3 * short
    written = pl.read_parquet(tmp_path / "one/measures.parquet")
    assert pl.DataFrame(whole.measures).equals(written)
    assert len(whole.results) > 4 and whole.folder == tmp_path / "one"


def test_parts_in_folders_of_their_own_are_put_together(
    sweep: dict[str, Any], tmp_path: Path
) -> None:
    parts = [tmp_path / name for name in "ab"]
    for number, part in enumerate(parts, 1):
        evenkeel.sweep(sweep, part, shard=f"{number}/2")
    merged = evenkeel.merge(parts, tmp_path / "all")
    alone = evenkeel.sweep(sweep, tmp_path / "alone")
    assert merged.missing == []
    assert pa.table(merged.measures).equals(pa.table(alone.measures))


def test_what_is_wrong_is_told(sweep: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3/2"):
        evenkeel.sweep(sweep, tmp_path, shard="3/2")
    sweep["vary"][0]["set"] = "router[r1].config.link[sink].discipline.limits"
    with pytest.raises(evenkeel.ScenarioError) as raised:
        evenkeel.sweep(sweep, tmp_path)
    assert raised.value.key == "vary" and raised.value.file == "<dict>"
    with pytest.raises(OSError, match="cannot read"):
        evenkeel.merge([tmp_path / "none"], tmp_path)


def test_the_example_spreads_a_sweep_over_workers(root: Path, tmp_path: Path) -> None:
    example = root / "python/examples/dask_sweep.py"
    file = tmp_path / "sweep.toml"
    scenario = root / "scenarios/wfq-altq/fig3.toml"
    file.write_text(
        f'name = "spread"\ntitle = "t"\nscenario = "{scenario}"\nseeds = [1, 2, 3]\n'
        'duration = "3s"\n[fixed]\nstep = []\nsettle = "1s"\n"traffic[from-h1].stop" = "3s"\n'
        '"traffic[from-h3].stop" = "3s"\n[measure]\ndelay = "delay(class1)@start"\n'
        '[[vary]]\nname = "ring"\nset = "router[r1].config.link[sink].ring.slots"\n'
        "values = [16, 64]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", example, file, tmp_path / "out", "--parts", "4"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "6 of 6 runs" in ran.stdout
    assert pl.read_parquet(tmp_path / "out/measures.parquet").height == 6
