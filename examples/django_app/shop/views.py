"""Placing an order and looking at it."""

# Django has no types.
# mypy: disable-error-code="import-untyped"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from .models import Order
from .tasks import app, send_receipt


class TooMany(Exception):
    pass


def place_order(request: HttpRequest) -> JsonResponse:
    item, quantity = request.POST.get("item", "book"), int(request.POST.get("quantity", "1"))
    try:
        with transaction.atomic():
            order = Order.objects.create(item=item, quantity=quantity)
            # In the same transaction: if anything goes wrong in it, there is neither an order nor a task.
            ref = app.sync.enqueue(send_receipt.bind(order.pk), conn=connection)
            take_from_stock(order)
    except TooMany as error:
        return JsonResponse({"error": str(error)}, status=409)
    return JsonResponse({"order": order.pk, "task": str(ref.id)}, status=201)


def show_order(request: HttpRequest, id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=id)
    return JsonResponse({"item": order.item, "quantity": order.quantity, "receipt": order.receipt})


def take_from_stock(order: Order) -> None:
    if order.quantity > 100:
        raise TooMany(f"there are not {order.quantity} x {order.item}")
