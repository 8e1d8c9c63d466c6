"""The host without a browser: Pyodide in Node, Dawn as the WebGPU implementation.

Input:  Node >= 20 on the path, web/node_modules, a Vulkan driver (`$VK_ICD_FILENAMES` picks one;
        Mesa's lavapipe otherwise).
Output: a process that runs web/host/node.js.
Way of the data: `host` -> node -> web/core.js.

Mesa's lavapipe from version 24 on works and offers shader-f16 on a CPU; older ones are refused by
Dawn, and the first call that needs the GPU then raises `HostError`.
"""

from __future__ import annotations

import os
import pathlib
import shutil

from exporter.hosts.host import Host
from exporter.hosts.server import WEB
from runtime_py.errors import HostError, TabfireError, WebGPUMissingError

ICD_FOLDER = pathlib.Path("/usr/share/vulkan/icd.d")
ADAPTER_HINT = (
    "install a Vulkan driver that Dawn takes (Mesa's lavapipe from version 24: Debian 13 "
    "`mesa-vulkan-drivers`, Debian 12 the same from bookworm-backports) and name its icd json in "
    "$VK_ICD_FILENAMES, or use --host chromium"
)


class NodeHost(Host):
    """Node with Dawn."""

    kind = "node"

    def command(self, origin: str, key: str, folder: pathlib.Path) -> list[str]:
        node = shutil.which("node")
        if node is None:
            raise HostError(
                "no `node` on the path", hint="install Node 20 or later: https://nodejs.org"
            )
        if not (WEB / "node_modules" / "webgpu").is_dir():
            raise HostError("web/node_modules has no Dawn", hint="run `npm ci` in web/")
        return [node, str(WEB / "host" / "node.js"), origin, key]

    def environment(self) -> dict[str, str]:
        """Return the environment with lavapipe picked, where the caller picked no driver."""
        chosen = dict(os.environ)
        found = sorted(ICD_FOLDER.glob("lvp_icd*.json"))
        if found and not chosen.keys() & {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"}:
            chosen["VK_ICD_FILENAMES"] = str(found[0])
        return chosen

    def explain(self, error: TabfireError) -> TabfireError:
        """Return a missing adapter as a fault of this host, with what to install."""
        if isinstance(error, WebGPUMissingError):
            return HostError(f"Node: {error.message}", hint=ADAPTER_HINT)
        return error
