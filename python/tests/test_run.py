"""Scenarios: the same bytes as the command, tables that are not copied, errors that say where."""

import filecmp
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import evenkeel
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest


def test_a_dict_runs_and_its_tables_are_those_of_the_reference(scenario: dict[str, Any]) -> None:
    result = evenkeel.run(scenario, connections=True)
    assert result.passed and [e.verdict for e in result.expectations] == ["holds"]
    assert result.name == "mine" and result.seed == 1 and result.without is None

    flows = pl.DataFrame(result.flows)
    assert flows["traffic"].to_list() == ["down", "down", "call"]
    rate = flows.filter(pl.col("traffic") == "down")["goodput_bps"].sum()
    assert 8.5e6 < rate < 10e6
    table = pa.table(result.samples)
    assert table.num_rows == len(result.samples) == 20
    described = {name: (unit, text) for name, unit, text in result.samples.describe()}
    assert described["delay_p99_us"] == ("us", "its 99 % quantile")
    assert table.schema.field("delay_p99_us").metadata[b"unit"] == b"us"
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame) and frame["sent"].sum() > 1_000
    windows = pl.DataFrame(result.connections)
    assert windows["cwnd_bytes"].min() > 0 and set(windows["flow"]) == {0, 1}
    assert result.summary["scenario"] == "mine"
    assert result.to_html().startswith("<!DOCTYPE html>")


def test_whoever_reads_a_table_reads_the_same_memory(scenario: dict[str, Any]) -> None:
    samples = evenkeel.run(scenario).samples
    first, second = pa.table(samples), pa.table(samples)
    column = first.column("t_s").chunk(0).buffers()[1]
    assert column.address == second.column("t_s").chunk(0).buffers()[1].address
    del samples
    assert first.equals(second)


def test_the_same_files_as_the_command_writes(root: Path, tmp_path: Path) -> None:
    command = Path(os.environ.get("EVENKEEL", root / "target/debug/evenkeel"))
    if not command.is_file():
        pytest.skip(f"{command} is not built: cargo build")
    file = root / "scenarios/lct/fig9.toml"
    evenkeel.run(file, time_scale=0.05, seed=3, out=tmp_path / "python")
    line = [command, "sim", file, "--time-scale", "0.05", "--seed", "3", "--quiet"]
    # Claims need not hold in so short a run.
    subprocess.run([*line, "--out", tmp_path / "command"], check=False, capture_output=True)
    names = sorted(path.name for path in (tmp_path / "python").iterdir())
    assert "result.json" in names and "samples.parquet" in names
    same, different, missing = filecmp.cmpfiles(
        tmp_path / "python", tmp_path / "command", names, shallow=False
    )
    assert (different, missing) == ([], []) and same == names


def test_seeds_run_side_by_side_and_come_in_order(scenario: dict[str, Any], tmp_path: Path) -> None:
    results = evenkeel.run_seeds(scenario, 4, out=tmp_path)
    assert [result.seed for result in results] == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"seed-{n}" for n in range(1, 5)]
    alone = evenkeel.run(scenario, seed=3)
    assert pa.table(alone.samples).equals(pa.table(results[2].samples))
    assert not pa.table(alone.samples).equals(pa.table(results[1].samples))
    assert [r.seed for r in evenkeel.run_seeds(scenario, [9, 7], jobs=1)] == [9, 7]


def test_a_file_is_wrong_at_a_line(root: Path, tmp_path: Path) -> None:
    text = (root / "scenarios/latency/pdrr.toml").read_text()
    file = tmp_path / "wrong.toml"
    file.write_text(text.replace('"20Mbit/s"', '"20Mbps"', 1))
    with pytest.raises(evenkeel.ScenarioError) as raised:
        evenkeel.run(file)
    line = 1 + text[: text.index('"20Mbit/s"')].count("\n")
    assert (raised.value.file, raised.value.line) == (str(file), line)
    assert raised.value.key == "router.config.link.rate"
    assert f"{file}:{line}: router.config.link.rate: " in str(raised.value)


def test_of_a_dict_the_key_is_told(scenario: dict[str, Any]) -> None:
    scenario["traffic"][0]["sizes"] = scenario["traffic"][0].pop("size")
    scenario["router"][0]["config"]["link"][0]["rate"] = "fast"
    with pytest.raises(evenkeel.ScenarioError) as raised:
        evenkeel.run(scenario)
    keys = {problem.key for problem in raised.value.problems}
    assert {"traffic.sizes", "router.config.link.rate"} <= keys
    assert all(problem.line == 0 and problem.file == "<dict>" for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("put", "kind", "said"),
    [
        ({"seed": None}, TypeError, "<dict>: seed: NoneType cannot stand there"),
        ({"seed": 1 << 64}, ValueError, "<dict>: seed: beyond 64 bits"),
        ({7: "x"}, TypeError, "a key is no text"),
        ({"host": [{"name": {1}}]}, TypeError, "host[0].name: set cannot stand there"),
    ],
)
def test_what_toml_cannot_hold(
    scenario: dict[str, Any], put: dict[Any, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said.replace("[", r"\[")):
        evenkeel.run({**scenario, **put})


def test_arguments_out_of_range(scenario: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time_scale -1: valid: above 0"):
        evenkeel.run(scenario, time_scale=-1)
    with pytest.raises(ValueError, match="say out"):
        evenkeel.run(scenario, capture=["a/r"])
    with pytest.raises(evenkeel.ScenarioError, match='no wire "a/c"'):
        evenkeel.run(scenario, capture=["a/c"], out=tmp_path)
    with pytest.raises(evenkeel.ScenarioError, match="nothing"):
        evenkeel.run(scenario, without="nothing")
    with pytest.raises(TypeError, match="a path, a text"):
        evenkeel.run(7)  # type: ignore[arg-type]
    with pytest.raises(evenkeel.ScenarioError, match="cannot be read"):
        evenkeel.run(tmp_path / "none.toml")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write"):
        evenkeel.run(scenario, out=tmp_path / "file")


def test_a_core_a_cluster_and_its_routers_run_too(root: Path) -> None:
    core = evenkeel.run(root / "scenarios/fairdrop/demo.toml", time_scale=0.5)
    assert len(core.samples) > 0
    cluster = evenkeel.run(root / "scenarios/stsdr/t-br.toml")
    assert cluster.passed and len(cluster.expectations) > 0
    live = evenkeel.run(root / "scenarios/stsdr/live.toml")
    assert live.passed
    with pytest.raises(ValueError, match="does not apply"):
        evenkeel.run(root / "scenarios/stsdr/t-br.toml", time_scale=0.5)


def test_the_guide_says_what_it_prints(root: Path, tmp_path: Path) -> None:
    blocks = (root / "docs/python.md").read_text().split("```python\n")
    code = blocks[1].split("```")[0]
    (tmp_path / "scenarios").symlink_to(root / "scenarios")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    said = code.split("print(result)")[1].split("# ")[1].splitlines()[0]
    assert ran.stdout.splitlines() == [said, "[]"]
    assert (tmp_path / "out/mine/report.html").is_file()


INTERRUPTED = """
import os, signal, sys, threading, evenkeel
text = open(sys.argv[1]).read().replace('duration = "40s"', 'duration = "6s"')
text = text.replace('settle = "10s"', 'settle = "1s"')
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    evenkeel.run_seeds(text, 100_000, jobs=2, out=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_keeps_what_is_done(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", INTERRUPTED, root / "scenarios/latency/pdrr.toml", out],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout == "interrupted\n"
    runs = list(out.iterdir())
    assert 1 <= len(runs) < 10_000
    # What was begun is whole.
    assert all((run / "report.html").is_file() for run in runs)
