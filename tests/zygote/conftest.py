# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "product"))

import harness  # noqa: E402, F401  (signals as usual, wherever the suite is started)
