"""A disk or a queue of notifications that is full, and input that nobody should have given.

See `faults.disk`, `faults.notices` and `faults.inputs`.
"""

import pytest
from in_short import place as place
from in_short import run_short

from faults.places import Place


@pytest.mark.parametrize("name", ["F11", "F16", "F21"])
def test_F11_F16_F21_the_server_and_what_it_is_given(place: Place, name: str) -> None:
    run_short(name, place)
