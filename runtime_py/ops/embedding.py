"""Operator rows: embedding."""

from __future__ import annotations

from runtime_py.ops.base import OpDef

OPS: tuple[OpDef, ...] = ()
