"""Finds a Chromium-family browser on this machine.

Input:  the environment (`$TABFIRE_CHROME` wins), the usual places of Linux, macOS and Windows.
Output: the path of an executable; `HostError` with everything that was tried if there is none.
Way of the data: browser -> `chromium`, which starts it.

    find_browser()        # PosixPath('/usr/bin/chromium')
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping

from runtime_py.errors import HostError

INSTALL_HINT = (
    "install Chrome or Chromium (Debian: `apt-get install chromium`; anywhere: "
    "`python -m playwright install chromium`), or name one in $TABFIRE_CHROME"
)
COMMANDS = (
    "google-chrome-canary",
    "google-chrome-unstable",
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
)
MAC_APPS = ("Google Chrome Canary", "Google Chrome", "Chromium")
WINDOWS_FOLDERS = ("Google/Chrome SxS", "Google/Chrome", "Chromium")
PLAYWRIGHT_BINARIES = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
    "chromium_headless_shell-*/chrome-*/*headless[-_]shell*",
)


def find_browser(
    environ: Mapping[str, str] | None = None, platform: str = sys.platform
) -> pathlib.Path:
    """Return the named browser, or Chrome Canary, Chrome, Chromium, Playwright's own."""
    env = os.environ if environ is None else environ
    named = env.get("TABFIRE_CHROME")
    if named:
        return _named(named)
    tried = []
    for candidate in _candidates(env, platform):
        if candidate.is_file():
            return candidate
        tried.append(str(candidate))
    raise HostError("no browser found; tried:\n    " + "\n    ".join(tried), hint=INSTALL_HINT)


def _named(text: str) -> pathlib.Path:
    path = shutil.which(text)
    if path is None:
        raise HostError(f"$TABFIRE_CHROME is {text!r}, which is no executable", hint=INSTALL_HINT)
    return pathlib.Path(path)


def _candidates(env: Mapping[str, str], platform: str) -> Iterator[pathlib.Path]:
    if platform == "darwin":
        home = pathlib.Path(env.get("HOME", "~")).expanduser()
        for app in MAC_APPS:
            for root in (pathlib.Path("/Applications"), home / "Applications"):
                yield root / f"{app}.app/Contents/MacOS/{app}"
    elif platform == "win32":
        roots = [
            env[name]
            for name in ("LOCALAPPDATA", "PROGRAMFILES", "PROGRAMFILES(X86)")
            if name in env
        ]
        for folder in WINDOWS_FOLDERS:
            for base in roots:
                yield pathlib.Path(base, folder, "Application/chrome.exe")
    else:
        for command in COMMANDS:
            yield pathlib.Path(shutil.which(command, path=env.get("PATH", "")) or command)
    yield from _playwright(env, platform)


def _playwright(env: Mapping[str, str], platform: str) -> Iterator[pathlib.Path]:
    """Yield the browsers in Playwright's download folder, newest first (or a pattern, to be
    reported).
    """
    home = pathlib.Path(env.get("HOME") or env.get("USERPROFILE") or "~").expanduser()
    folder = {"darwin": home / "Library/Caches", "win32": home / "AppData/Local"}.get(
        platform, home / ".cache"
    )
    root = pathlib.Path(env.get("PLAYWRIGHT_BROWSERS_PATH") or folder / "ms-playwright")
    for pattern in PLAYWRIGHT_BINARIES:
        found = sorted(root.glob(pattern), reverse=True)
        yield from found or [root / pattern]
