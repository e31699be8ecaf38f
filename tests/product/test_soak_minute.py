# SPDX-License-Identifier: Apache-2.0
"""A minute of what `make soak` does for half an hour."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "soak"))

from soak import soak  # noqa: E402


@pytest.mark.slow
def test_a_server_does_not_grow(who, capsys):
    said = []
    n = soak(who, runs=500, seconds=15, clients=3, say=said.append)
    with capsys.disabled():
        print("", *said, sep="\n    ")
    assert n > 700
