"""``python -m pytest_rubrics``, the same as ``rubrics``."""

import sys

from pytest_rubrics.cli import main

sys.exit(main())
