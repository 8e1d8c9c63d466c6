"""The numbers of one GGUF tensor: floats widened to float32, or the codes and scales of its blocks.

Input:  a `gguf.ReaderTensor`. Output: torch tensors, exact.
Way of the data: the gguf package -> gguf_blocks -> `models.gguf` -> `quantize.pack`.

    codes, scales, mins = read_blocks(reader.tensors[1])          # Q4_1: [N, K], [N, K/32] twice
"""

from __future__ import annotations

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Kind
from torch import Tensor

from exporter.schemes import SCHEMES
from runtime_py.errors import ExportError

BLOCK = 32  # codes in a block of every type below
SCHEME_OF = {Kind.Q4_0: "q4gsw", Kind.Q4_1: "q4gaw", Kind.Q8_0: "q8gsw"}
FLOATS = (Kind.F32, Kind.F16, Kind.BF16)


def read_floats(tensor: gguf.ReaderTensor) -> Tensor:
    values = torch.from_numpy(
        np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    )
    if not bool(torch.isfinite(values).all()):
        raise ExportError(
            f"tensor {tensor.name} holds NaN or infinity", hint="the checkpoint is damaged"
        )
    return values


def read_blocks(tensor: gguf.ReaderTensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return codes `[N, K]` and scales, minima `[N, K / 32]`, taken out of the file's blocks of 32.

    A block is an f16 scale, for Q4_1 an f16 minimum, then the codes: 32 signed bytes, or 16 bytes
    whose low nibbles are codes 0..15 and whose high nibbles are codes 16..31.
    """
    affine, bits = tensor.tensor_type == Kind.Q4_1, SCHEMES[SCHEME_OF[tensor.tensor_type]].bits
    head = 4 if affine else 2
    rows = tensor.data.shape[0]
    blocks = (
        np.ascontiguousarray(tensor.data).view(np.uint8).reshape(rows, -1, head + BLOCK * bits // 8)
    )
    heads = torch.from_numpy(
        np.ascontiguousarray(blocks[:, :, :head]).view(np.float16).astype(np.float32)
    )
    body = torch.from_numpy(np.ascontiguousarray(blocks[:, :, head:]))
    codes = body.view(torch.int8) if bits == 8 else torch.cat((body & 15, body >> 4), dim=-1)
    return codes.reshape(rows, -1), heads[:, :, 0], heads[:, :, 1] if affine else None
