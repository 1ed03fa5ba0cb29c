"""Orders."""

# Django has no types.
# mypy: disable-error-code="import-untyped,misc"

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField()
    receipt = models.CharField(max_length=200, blank=True, default="")
