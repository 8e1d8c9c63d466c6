"""Which outputs a dispatch works for, so that a step computes no more than it is asked for.

Input:  the dispatches of a plan, the graph's outputs and buffers. Output: one word of bits a
dispatch.
Way of the data: under `plan`; `program` picks the dispatches of a step by these bits.

Bit i stands for output i; outputs past the last bit share it, which computes too much, never too
little. What writes a buffer of the model is wanted in every step.

    serves = reach(dispatches, roots, [{"logits"}, {"next"}], {"k_cache", "v_cache"})
    wanted = ALWAYS | output_bit(1)
    [d for d, bits in zip(dispatches, serves) if bits & wanted]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from runtime_py.ops.base import Dispatch

ALWAYS = 1 << 30
LAST_OUTPUT = 29  # the bits below `ALWAYS`: words are signed in JS


def output_bit(index: int) -> int:
    """Return the bit of output `index`."""
    return 1 << min(index, LAST_OUTPUT)


def reach(
    dispatches: Sequence[Dispatch],
    roots: Mapping[str, str],
    outputs: Sequence[str],
    kept: AbstractSet[str],
    private: AbstractSet[str] = frozenset(),
) -> tuple[int, ...]:
    """Return the bits of every dispatch: the outputs that it feeds, and `ALWAYS`.

    roots    views -> the value whose bytes they are
    outputs  the value of every output
    kept     buffers that keep their content between steps
    private  nodes whose writes to such buffers nobody else reads
    """
    needed: dict[str, int] = {}
    for index, name in enumerate(outputs):
        root = roots.get(name, name)
        needed[root] = needed.get(root, 0) | output_bit(index)
    result = []
    for dispatch in reversed(dispatches):
        bits, names = 0, []
        for binding in dispatch.bindings:
            name = roots.get(binding.value, binding.value)
            names.append(name)
            if binding.access != "read":
                bits |= 0 if name in kept else needed.get(name, 0)
                if name in kept and dispatch.node not in private:
                    bits |= ALWAYS
        for name in names:
            needed[name] = needed.get(name, 0) | bits
        result.append(bits)
    return tuple(reversed(result))
