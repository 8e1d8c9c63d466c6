"""tabfire's runtime: a bundle runs on `navigator.gpu`, in Pyodide or (without a GPU) in CPython."""
