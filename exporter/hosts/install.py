"""Makes sure that a browser for the tests is there, and says which.

Input:  this machine. Output: the browser's path; installs one if none is found.
Way of the data: `make test` -> install -> `browser`.

Debian as root takes the distribution's `chromium`, which is kept current with its libraries;
elsewhere Playwright downloads its own.

    python -m exporter.hosts.install
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from exporter.hosts.browser import find_browser
from runtime_py.errors import HostError


def install_commands() -> list[list[str]]:
    """Return the commands that install a browser on this machine."""
    is_root = getattr(os, "geteuid", lambda: 1)() == 0
    if is_root and _distribution() == "debian":  # Ubuntu's package only points at a snap
        apt = ["apt-get", "-y", "-qq"]
        return [
            [*apt, "update"],
            [*apt, "install", "--no-install-recommends", "chromium", "fonts-noto-color-emoji"],
        ]
    return [[sys.executable, "-m", "playwright", "install", "chromium"]]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def ensure_browser() -> str:
    """Return the path of a browser, after installing one if need be; raises `HostError`."""
    try:
        return str(find_browser())
    except HostError:
        if os.environ.get("TABFIRE_CHROME"):
            raise  # the named one is missing: another one would not be what was asked for
    for command in install_commands():
        print("+", " ".join(command), flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise HostError(
                f"`{' '.join(command)}` failed", hint="install Chrome or Chromium by hand"
            )
    return str(find_browser())


if __name__ == "__main__":
    try:
        print(f"browser: {ensure_browser()}")
    except HostError as error:
        sys.exit(f"error: {error}")
