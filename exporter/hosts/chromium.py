"""The host that everything is judged by: headless Chrome or Chromium with WebGPU.

Input:  a browser (`browser`), `$TABFIRE_ADAPTER` (swiftshader or gpu), `$TABFIRE_CHROME_FLAGS`
(more flags).
Output: a process with a fresh profile that opens web/host/index.html.
Way of the data: `host` -> chromium -> the browser's worker.

The page talks to the local server by itself, so the browser needs no remote control and any version
will do.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import sys
from collections.abc import Mapping

from exporter.hosts.browser import find_browser
from exporter.hosts.host import Host
from runtime_py.errors import OptionError

BASE_FLAGS = (
    "--headless",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--enable-unsafe-webgpu",
)
# By that extension SwiftShader zeroes each element of workgroup memory with a store of its own:
# compiling a tiled GEMM takes 1.4 s on two cores, and 0.1 s where Dawn writes a loop that zeroes.
SWIFTSHADER_FLAGS = (
    "--use-webgpu-adapter=swiftshader",
    "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
)
LINUX_GPU_FLAGS = (
    "--enable-features=Vulkan",
    "--use-angle=vulkan",
    "--ignore-gpu-blocklist",
    "--enable-gpu",
    "--disable-vulkan-surface",
    "--disable-gpu-sandbox",
    "--enable-dawn-features=vulkan_enable_f16_on_nvidia,allow_unsafe_apis",
)
ADAPTERS = ("swiftshader", "gpu")


class ChromiumHost(Host):
    """A headless browser with the adapter that the environment asks for."""

    kind = "chromium"

    def command(self, origin: str, key: str, folder: pathlib.Path) -> list[str]:
        url = f"{origin}/host/?key={key}"
        profile = f"--user-data-dir={folder / 'profile'}"
        return [str(find_browser()), *browser_flags(), profile, "--remote-debugging-port=0", url]


def browser_flags(
    environ: Mapping[str, str] | None = None, platform: str = sys.platform, root: bool | None = None
) -> list[str]:
    """Return the flags for a headless browser whose WebGPU works on this machine."""
    env = os.environ if environ is None else environ
    is_root = getattr(os, "geteuid", lambda: 1)() == 0 if root is None else root
    flags = [*BASE_FLAGS, *(["--no-sandbox"] if is_root and platform == "linux" else [])]
    return [
        *flags,
        *_adapter_flags(env, platform),
        *shlex.split(env.get("TABFIRE_CHROME_FLAGS", "")),
    ]


def _adapter_flags(env: Mapping[str, str], platform: str) -> tuple[str, ...]:
    """Return the flags that pick the adapter; a Linux machine is taken to have no GPU unless
    NVIDIA's driver shows.
    """
    default = (
        "swiftshader" if platform == "linux" and not os.path.exists("/dev/nvidiactl") else "gpu"
    )
    choice = env.get("TABFIRE_ADAPTER") or default
    if choice not in ADAPTERS:
        raise OptionError(f"$TABFIRE_ADAPTER is {choice!r}", hint=f"one of {', '.join(ADAPTERS)}")
    if choice == "swiftshader":
        return SWIFTSHADER_FLAGS
    return LINUX_GPU_FLAGS if platform == "linux" else ()
