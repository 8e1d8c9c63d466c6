"""tabfire's command line: serve the chat page (default), run a prompt headless, measure.

    python serve.py                                          # http://127.0.0.1:8000
    python serve.py run models/smollm2 --chat "Hello" --max-tokens 32 --json
    python serve.py bench models/smollm2 --json

Input: a folder of bundles, or one bundle. Output: a server, text, or one JSON document. See
exporter/commands.py.
"""

import sys

from exporter.commands import main

if __name__ == "__main__":
    sys.exit(main())
