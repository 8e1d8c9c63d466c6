"""GPU timestamps of every dispatch, also of more than one query set holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import gpu

pytestmark = pytest.mark.gpu

# web/profile.js: a query set holds 4096 queries (WebGPU's limit), two a dispatch.
DISPATCHES_A_SET = 2048


class Chain(nn.Module):
    """`length` negations of x, one after the other, each counted by a buffer at the end."""

    count: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.length):
            x = x.neg()
        self.count += 1
        return x


def test_a_step_longer_than_a_query_set_has_every_time() -> None:
    length = DISPATCHES_A_SET + 53
    x = np.asarray([1.0, -2.0, 3.0], np.float32)
    example = {"x": torch.zeros(3)}
    with gpu.opened(gpu.bundle("chain", lambda: (Chain(length), example, {}, ()))) as session:
        times = session.profile({"x": x})
        (program,) = session.report()["programs"]
        assert len(times) == len(program["dispatches"]) >= length
        for key in ("node", "kernel", "key"):
            assert [t[key] for t in times] == [d[key] for d in program["dispatches"]]
        assert all(t["time_ms"] >= 0 for t in times)
        for part in (times[:DISPATCHES_A_SET], times[DISPATCHES_A_SET:]):  # both sets were read
            assert sum(t["time_ms"] for t in part) > 0
        # the profiled step was a step: its dispatches ran once each, in order
        assert session.state()["count"].tolist() == [1]
        assert session.run({"x": x})["output"].tolist() == (-x).tolist()
        assert session.state()["count"].tolist() == [2]
