"""What `holdfast worker holdfast_app` runs: Django first, because tasks use its models."""

# Django has no types.
# mypy: disable-error-code="import-untyped"

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from shop.tasks import app  # noqa: E402

__all__ = ["app"]
