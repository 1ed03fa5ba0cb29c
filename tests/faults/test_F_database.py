"""A database whose sessions end, that crashes, and a network that loses answers or falls silent.

See `faults.database`, `faults.commits` and `faults.network`.
"""

import pytest
from in_short import place as place
from in_short import run_short

from faults.places import Place


@pytest.mark.parametrize("name", ["F6b", "F7", "F8"])
def test_F6b_F7_F8_the_database_and_the_way_to_it(place: Place, name: str) -> None:
    run_short(name, place)
