"""Small modules, each with one habit that an exporter can get wrong.

Input:  what their forward says. Output: tensors. Eager PyTorch on them is the truth of the export
tests.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter import ops


class Decoder(nn.Module):
    """Attention over a cache `[1, C, Hkv, D]` in plain torch; `write`, `heads` and `mask` choose
    the spelling.
    """

    k: Tensor
    v: Tensor
    triangle: Tensor

    def __init__(
        self, context: int = 16, write: str = "slice", heads: str = "gqa", mask: str = "compare"
    ) -> None:
        super().__init__()
        self.context, self.write, self.heads, self.mask = context, write, heads, mask
        self.register_buffer("k", torch.zeros(1, context, 2, 4))
        self.register_buffer("v", torch.zeros(1, context, 2, 4))
        triangle = torch.ones(context, context, dtype=torch.bool).tril()
        self.register_buffer("triangle", triangle, persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: int) -> Tensor:
        rows = q.shape[1]
        self._write(k, v, pos, rows)
        keys, values = self.k, self.v
        if self.mask.startswith("cut"):
            keys, values = keys[:, : pos + rows], values[:, : pos + rows]
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        if self.heads == "repeat":
            keys, values = keys.repeat_interleave(3, 1), values.repeat_interleave(3, 1)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys,
            values,
            attn_mask=self._mask(pos, rows),
            enable_gqa=self.heads == "gqa",
        )
        return mixed.transpose(1, 2).flatten(2)

    def _write(self, k: Tensor, v: Tensor, pos: int, rows: int) -> None:
        if self.write == "slice":
            self.k[:, pos : pos + rows] = k
            self.v[:, pos : pos + rows] = v
        elif self.write == "index_copy":
            where = torch.arange(rows) + pos
            self.k.index_copy_(1, where, k)
            self.v.index_copy_(1, where, v)
        else:
            where = torch.arange(pos, pos + rows)
            self.k[:, where] = k
            self.v[:, where] = v

    def _mask(self, pos: int, rows: int) -> Tensor | None:
        key = torch.arange(self.context)[None, :]
        query = torch.arange(rows)[:, None] + pos
        if self.mask == "compare":
            return key <= query
        if self.mask == "window":
            return (key <= query) & (key > query - 5)
        if self.mask == "triangle":
            return self.triangle[pos : pos + rows]
        if self.mask == "cut_triangle":
            return self.triangle[pos : pos + rows, : pos + rows]
        if self.mask == "triu":
            return torch.full((rows, self.context), float("-inf")).triu(diagonal=pos + 1)
        if self.mask == "alibi":
            return torch.where(key <= query, (key - query).float(), float("-inf"))
        if self.mask == "off_by_one":
            return key <= query + 1
        return None


class Branching(nn.Module):
    """A Python `if` on a symbolic number; `kind` chooses which."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, pos: int) -> Tensor:
        rows = x.shape[1]
        taken = False
        if self.kind == "rows > 3" and rows > 3:
            taken = True
        if self.kind == "rows > 1" and rows > 1:
            taken = True
        if self.kind == "pos == 7" and pos == 7:
            taken = True
        if self.kind == "never" and rows < 0:
            taken = True
        return x * 2 if taken else x + 1


class FixedRows(nn.Module):
    """Adds a table of 3 rows: the number of rows can only be 3 (or, by broadcasting, 1)."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(3, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class FirstRows(nn.Module):
    """Writes its rows at the front of a buffer of 16."""

    k: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.k[:, : x.shape[1]] = x
        return self.k.sum(1)


class ItemPosition(nn.Module):
    """Takes its position from a tensor, by `.item()`."""

    k: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 16, 8))

    def forward(self, x: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        pos, rows = cast(int, where.item()), x.shape[1]
        self.k[:, pos : pos + rows] = x
        return self.k.sum(1) + where, self.k[:, pos : pos + rows]


class NonPersistent(nn.Module):
    """Two buffers outside the state dict, one of them mutated."""

    b: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.ones(4), persistent=False)
        self.register_buffer("count", torch.tensor([5.0]), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        return x + self.b, self.count


class CopyLast(nn.Module):
    """Returns what the buffer held before; the copy into it is the very last operation."""

    buf: Tensor

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last
        self.register_buffer("buf", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.last:
            before = self.buf * 1
            self.buf.copy_(x)
            return before
        self.buf.copy_(x)
        return x * 1


class Counter(nn.Module):
    """Starts at 5; every call adds 1 and returns the sum."""

    counter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counter", torch.tensor([5.0]))

    def forward(self) -> Tensor:
        self.counter += 1
        return self.counter


class ViewWrite(nn.Module):
    """Writes through a view of a buffer."""

    k: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.k[0].add_(x)
        return self.k.sum()


class Swap(nn.Module):
    """Two buffers change places; a returned buffer and an old reading of it."""

    a: Tensor
    b: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0]))
        self.register_buffer("b", torch.tensor([2.0]))

    def forward(self) -> dict[str, Tensor]:
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        return {"a": self.a, "b": self.b, "old": old}


class FloorArithmetic(nn.Module):
    """Symbolic arithmetic whose floor differs from truncation, and a divisor that can be zero."""

    def forward(self, x: Tensor, pos: int, by: int) -> tuple[Tensor, Tensor, Tensor]:
        return x * ((pos - 3) // 2), x * ((pos - 7) % 4), x + pos // (by - 2)


class LateReaders(nn.Module):
    """Mutating operators of ours, with readers of the content before, between and after."""

    k: Tensor
    v: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 16, 2, 4))
        self.register_buffer("v", torch.zeros(1, 16, 2, 4))

    def forward(self, q: Tensor, k: Tensor, pos: int, given: Tensor) -> tuple[Tensor, ...]:
        old = self.k.clone()
        mixed = ops.sdpa_with_kv_cache(q, k, k, self.k, self.v, pos)
        between = self.k * 1
        ops.update_cache(k * 2, self.k, pos)
        self.v.mul_(0.5)
        copied = self.k.clone()
        ops.update_cache(k * 7, copied, pos)
        ops.update_cache(k * 3, given, pos)
        return mixed, old.sum(1), between, self.k, self.v + 1, copied, given


class CacheView(nn.Module):
    """Gives a mutating operator a view of a buffer."""

    kv: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kv", torch.zeros(2, 1, 16, 2, 4))

    def forward(self, k: Tensor, pos: int) -> Tensor:
        ops.update_cache(k, self.kv[0], pos)
        return k * 1


class Unsupported(nn.Module):
    """Five operations that nothing lowers."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        y = torch.cumsum(x, 1)
        z = torch.argsort(x, -1)
        masked = x[x > 0].sum()
        number = w.item()
        return y + z + masked + number + F.hardswish(x)


class TwoNames(nn.Module):
    """One weight under two names, as a tied head has it; and constants that can be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        scale = torch.rsqrt(torch.full((8,), 64.0)) * torch.arange(8)
        x: Tensor = self.table(ids) * scale
        y: Tensor = self.head(x)
        return y
