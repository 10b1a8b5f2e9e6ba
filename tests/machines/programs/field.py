"""Prints expressions of the JSON document that comes in, which is called `told`.

field.py EXPRESSIONS
"""

import json
import sys

exec(f"print({sys.argv[1]})", {"told": json.load(sys.stdin)})
