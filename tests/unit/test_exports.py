"""The public surface: exactly what is meant to be there, and nothing by accident."""

import inspect

import holdfast
from holdfast import errors


def test_all_is_sorted_and_true() -> None:
    assert sorted(holdfast.__all__) == holdfast.__all__
    for name in holdfast.__all__:
        assert hasattr(holdfast, name), name


def test_nothing_else_is_public() -> None:
    names = [name for name in dir(holdfast) if not name.startswith("_")]
    found = {name for name in names if not inspect.ismodule(getattr(holdfast, name))}
    assert found == set(holdfast.__all__)


def test_every_error_is_exported_and_one_tree() -> None:
    tree = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            assert name in holdfast.__all__, name
            assert issubclass(value, errors.HoldfastError), name
            assert f" {name} " in tree or f"{name}\n" in tree, f"{name} is not drawn in the tree"
