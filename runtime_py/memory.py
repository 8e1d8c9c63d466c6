"""Where temporary tensors live: slots that tensors with disjoint lifetimes share.

Input:  tensors with sizes and lifetimes (first and last dispatch index). Output: a slot for each.
Way of the data: used by `plan`; a slot becomes one GPU buffer in `session`.

A slot of n bytes serves sizes in [n/2, n]: a small tensor never pins a large buffer. Slots outlive
a program, so the
programs of one session (which never run at the same time) share them.

    pool = SlotPool()
    pool.place([Lifetime("a", 1024, 0, 1), Lifetime("b", 1024, 2, 3)])   # both in slot 0
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Lifetime:
    """A tensor that exists from dispatch `first` to dispatch `last`, both inclusive."""

    name: str
    size_bytes: int
    first: int
    last: int


@dataclass
class SlotPool:
    """The slots of a session; with `reuse=False` every tensor gets a slot of its own."""

    reuse: bool = True
    sizes_bytes: list[int] = field(default_factory=list)
    plain_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all slots, what the GPU really holds."""
        return sum(self.sizes_bytes)

    def place(self, tensors: Iterable[Lifetime]) -> dict[str, int]:
        """Return tensor name -> slot index; two tensors that live at once never share a slot."""
        order = sorted(tensors, key=lambda t: (t.first, -t.size_bytes, t.name))
        busy_until = [-1] * len(self.sizes_bytes)
        placed: dict[str, int] = {}
        for tensor in order:
            self.plain_bytes += tensor.size_bytes
            slot = self._best_fit(tensor, busy_until)
            if slot is None:
                slot = len(self.sizes_bytes)
                self.sizes_bytes.append(tensor.size_bytes)
                busy_until.append(-1)
            busy_until[slot] = len(order) + tensor.last if not self.reuse else tensor.last
            placed[tensor.name] = slot
        return placed

    def _best_fit(self, tensor: Lifetime, busy_until: list[int]) -> int | None:
        fits = [
            (size, slot)
            for slot, size in enumerate(self.sizes_bytes)
            if busy_until[slot] < tensor.first and size // 2 <= tensor.size_bytes <= size
        ]
        if not self.reuse:
            fits = [
                (size, slot)
                for size, slot in fits
                if busy_until[slot] == -1 and size == tensor.size_bytes
            ]
        return min(fits)[1] if fits else None
