"""A corpus prepared by Ray tasks, a part each, on whatever machines the cluster has, and published as one set.

    python examples/ray_prepare.py CORPUS --parts 8 --vocab 32768 --cache /shared/cache

The corpus and the cache must be folders that all machines see. A task that is lost is made again by Ray; a part that
was made is found again.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray

from linnet.data import join_parts, prepare_part


def main() -> None:
    """Prepare all parts, then join them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--cpus", type=int, default=4, help="of each task")
    parser.add_argument("--cache", help="a folder that all machines see")
    given = parser.parse_args()
    options: dict[str, Any] = {"vocab": given.vocab, "cache": given.cache, "workers": given.cpus}

    @ray.remote(num_cpus=given.cpus, max_retries=3)
    def prepared(part: str) -> int:
        return len(prepare_part(given.corpus, part, **options).train)

    ray.init()
    tasks = [prepared.remote(f"{number}/{given.parts}") for number in range(1, given.parts + 1)]
    for number, tokens in enumerate(ray.get(tasks), 1):
        print(f"part {number} of {given.parts}: {tokens:,} tokens")
    joined = join_parts(given.corpus, **options)
    print(f"{len(joined.train):,} tokens to train on, fingerprint {joined.fingerprint}: {joined.path}")


if __name__ == "__main__":
    main()
