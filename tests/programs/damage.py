"""damage.py POOL: sets in use are counted wrongly then. By docs/layout.md: in the root, at 1024."""

import sys

with open(sys.argv[1], "r+b") as pool:
    pool.seek(1024 + 24 + 40 + 16)
    pool.write((99).to_bytes(8, "little"))
