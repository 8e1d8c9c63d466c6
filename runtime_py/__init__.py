"""tabfire's runtime: a bundle runs on `navigator.gpu`, in Pyodide or (without a GPU) in CPython."""

__version__ = "0.1.0"
