"""The App, and the tasks of the shop."""

# Django has no types.
# mypy: disable-error-code="import-untyped"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from django.db import close_old_connections, transaction

from holdfast import App, Retry

app = App()


@app.task(retry=Retry(5, delay="2s"))
def send_receipt(order_id: int) -> str:
    """A plain function is executed in a thread, where Django's models may be used."""
    from .models import Order

    close_old_connections()  # what Django does before each request: one that broke is not used again
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        if not order.receipt:  # a step may be executed again: the second time there is nothing to do
            order.receipt = f"receipt for {order.quantity} x {order.item}"
            order.save()
        return str(order.receipt)
