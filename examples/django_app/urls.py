"""Two addresses: place an order, and look at it."""

# Django has no types.
# mypy: disable-error-code="import-untyped"

from django.urls import path
from shop import views

urlpatterns = [path("orders/", views.place_order), path("orders/<int:id>/", views.show_order)]
