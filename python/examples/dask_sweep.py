"""A sweep over the workers of a Dask cluster.

    python dask_sweep.py sweep.toml OUT [--parts N] [--scheduler tcp://host:8786]

Without a scheduler it starts workers on this machine. Each worker runs parts of the sweep into the
folder OUT, which all of them must share, as with the job arrays of Slurm. A worker that dies loses
its part to another; a sweep that is interrupted goes on where it stopped.
"""

import argparse
from pathlib import Path

import evenkeel
from dask.distributed import Client, as_completed


def part(sweep: Path, out: Path, shard: str) -> tuple[str, int, list[str]]:
    """Runs on a worker."""
    done = evenkeel.sweep(sweep, out / "parts" / shard.replace("/", "-of-"), jobs=1, shard=shard)
    return shard, done.kept + done.new, done.failed


def main() -> int:
    """Spreads the parts, then puts them together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--scheduler", help="the address of a cluster that runs already")
    args = parser.parse_args()
    failed: list[str] = []
    with Client(args.scheduler) if args.scheduler else Client(dashboard_address=None) as client:
        shards = [f"{number}/{args.parts}" for number in range(1, args.parts + 1)]
        paths = args.sweep.resolve(), args.out.resolve()
        futures = client.map(lambda shard: part(*paths, shard), shards, pure=False)
        for future in as_completed(futures):
            shard, runs, wrong = future.result()
            print(f"part {shard}: {runs} runs")
            failed += wrong
    merged = evenkeel.merge(sorted((args.out / "parts").iterdir()), args.out)
    print(f"{merged.tasks - len(merged.missing)} of {merged.tasks} runs in {args.out}")
    print("\n".join(failed), end="\n" if failed else "")
    return 1 if failed or merged.missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
