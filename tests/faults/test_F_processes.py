"""Workers that are killed, stopped, or stuck: see `faults.processes`."""

import pytest
from in_short import place as place
from in_short import run_short

from faults.places import Place


@pytest.mark.parametrize("name", ["F1", "F3"])
def test_F1_F3_killed_and_stopped(place: Place, name: str) -> None:
    run_short(name, place)
