"""`Cluster`: so many devices in so many machines, and how long they take to add up what each of them has.

Calculated, not measured: a collective takes its bytes at the speed of each link they pass, and a start for every
doubling of the ranks. Only gloo's sums between processes of one machine were measured (docs/cost.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Seconds that a message waits before its first byte, inside a machine and between two: the usual figures of NVLink and
# of InfiniBand, not measured.
_START_INSIDE, _START_BETWEEN = 5e-6, 15e-6


@dataclass(frozen=True)
class Cluster:
    """`gpus` in each of `machines`.

    - `link`: bytes a second that a machine sends to the others; `gpu_link`: a device, to those of its machine.
    """

    gpus: int
    machines: int
    link: float
    gpu_link: float

    @property
    def ranks(self) -> int:
        """Processes that train together, a device each."""
        return self.gpus * self.machines

    def gather_seconds(self, size: float) -> float:
        """Each rank has a part of `size` bytes, and all get the whole; or the other way round, added up.

        Inside a machine every device sends to its neighbour; between machines each sends what its own have once.
        """
        if self.ranks == 1:
            return 0.0
        inside = (self.gpus - 1) / self.gpus * size / self.gpu_link
        between = (self.machines - 1) / self.machines * size / self.link if self.machines > 1 else 0.0
        starts = math.log2(self.gpus) * _START_INSIDE + math.log2(self.machines) * _START_BETWEEN
        return inside + between + starts

    def sum_seconds(self, size: float) -> float:
        """Add up `size` bytes of every rank, for every rank: scattered sums, then gathered."""
        return 2 * self.gather_seconds(size)


def curve_clusters(gpus: int, machines: int, link: float, gpu_link: float, most: int) -> list[Cluster]:
    """From one device to `most`: a machine filled up in doublings, then machines doubled; the asked one among them."""
    inside = [1 << power for power in range(most.bit_length()) if 1 << power < gpus]
    counts = [(count, 1) for count in (*inside, gpus)]
    counts += [(gpus, 1 << power) for power in range(1, most.bit_length()) if gpus << power <= most]
    chosen = {*(pair for pair in counts if pair[0] * pair[1] <= most), (gpus, machines)}
    return [Cluster(a, b, link, gpu_link) for a, b in sorted(chosen, key=lambda pair: pair[0] * pair[1])]
