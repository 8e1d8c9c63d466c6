"""Hosts: processes in which a bundle runs for real, and the local server that feeds them.

Way of the data: `run`, `verify`, `serve.py` -> hosts -> a browser (or Node) -> runtime_py under
Pyodide.
"""

from exporter.hosts.host import Host, get_host

__all__ = ["Host", "get_host"]
