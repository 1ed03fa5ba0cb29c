"""A disk that is full, and input that nobody should have given: see `faults.disk` and `faults.inputs`."""

import pytest
from in_short import place as place
from in_short import run_short

from faults.places import Place


@pytest.mark.parametrize("name", ["F11", "F16"])
def test_F11_F16_the_server_and_what_it_is_given(place: Place, name: str) -> None:
    run_short(name, place)
