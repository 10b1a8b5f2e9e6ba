"""`python3 -m vshmem_lab`."""

import sys

from vshmem_lab.cli import main

sys.exit(main())
