# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "attack"))
pytest.register_assert_rewrite("attack_support")

import attack_support as support  # noqa: E402

support.adopt_orphans()


@pytest.fixture(params=["root", "user"])
def who(request):
    if request.param == "root":
        support.need_root()
    return request.param
