"""A shop, for pictures of the dashboard and for tests in a browser: orders, invoices, mails, reports and schedules."""

from dataclasses import dataclass
from typing import Any

from holdfast import Cron, Done, Every, Fail, Later, Retry, Tasks

tasks = Tasks()
order = tasks.kind("order", result=str, queue="orders", priority=2, retry=Retry(4, delay="5s", max_delay="5m"))
invoice = tasks.kind("invoice", result=str, queue="invoices", retry=Retry(3, delay="2s"))
report = tasks.kind("report", result=str, queue="reports")

COUNTRIES = {"AT": "20 %", "DE": "19 %", "FR": "20 %", "NL": "21 %"}


@order.step
@dataclass
class ReserveStock:
    order_id: int
    items: dict[str, int]
    customer: str

    async def run(self) -> "ChargeCard | Later[AwaitRestock]":
        if "lamp-oak" in self.items:
            return Later(AwaitRestock(self.order_id, self.items, self.customer), "6h")
        return ChargeCard(self.order_id, self.customer)


@order.step
@dataclass
class AwaitRestock:
    order_id: int
    items: dict[str, int]
    customer: str

    async def run(self) -> ReserveStock:
        return ReserveStock(self.order_id, self.items, self.customer)


@order.step
@dataclass
class ChargeCard:
    order_id: int
    customer: str

    async def run(self) -> "PackParcel | ReleaseStock":
        return PackParcel(self.order_id) if self.order_id else ReleaseStock(self.order_id)


@order.step
@dataclass
class PackParcel:
    order_id: int

    async def run(self) -> "ShipParcel":
        return ShipParcel(self.order_id, "standard")


@order.step
@dataclass
class ShipParcel:
    order_id: int
    service: str

    async def run(self) -> Done[str]:
        return Done(f"order {self.order_id} is on its way")


@order.step
@dataclass
class ReleaseStock:
    order_id: int

    async def run(self) -> Done[str]:
        return Done(f"order {self.order_id} was not paid")


@invoice.step
@dataclass
class RenderInvoice:
    order_id: int
    country: str

    async def run(self) -> "SendInvoice":
        if self.country not in COUNTRIES:
            raise Fail(f"no rate of tax is known for {self.country!r}")
        return SendInvoice(self.order_id, COUNTRIES[self.country])


@invoice.step
@dataclass
class SendInvoice:
    order_id: int
    tax: str

    async def run(self) -> Done[str]:
        return Done(f"invoice {self.order_id} with {self.tax} tax")


@report.step
@dataclass
class CollectSales:
    days: int

    async def run(self) -> "RenderReport":
        return RenderReport(self.days, 0)


@report.step
@dataclass
class RenderReport:
    days: int
    sales: int

    async def run(self) -> Done[str]:
        return Done(f"{self.sales} sales in {self.days} days")


@tasks.task(queue="mail", retry=Retry(6, delay="10s"))
async def send_mail(to: str, template: str) -> None:
    """Confirmations, reminders, newsletters."""


@tasks.task(queue="stock", retry=Retry(3))
async def sync_stock(warehouse: str) -> None:
    """What the warehouse has."""


@tasks.task(queue="stock", retry=Retry(2))
async def import_prices(supplier: str) -> None:
    """What the supplier asks for."""


@tasks.task(queue="media", retry=Retry(3))
async def resize_image(product: str, width: int) -> None:
    """Pictures of products."""


BERLIN = "Europe/Berlin"
SCHEDULES: dict[str, tuple[Cron | Every, Any]] = {
    "abandoned-carts": (Cron("15 * * * *", tz=BERLIN), send_mail.bind("carts@example.com", "abandoned_cart")),
    "month-end": (Cron("0 4 1 * *", tz=BERLIN), CollectSales(30)),
    "newsletter": (Cron("0 9 * * mon", tz=BERLIN), send_mail.bind("everybody@example.com", "newsletter")),
    "nightly-report": (Cron("0 3 * * *", tz=BERLIN), CollectSales(1)),
    "price-import": (Cron("30 6 * * mon-fri", tz=BERLIN), import_prices.bind("northwind")),
    "product-images": (Cron("*/20 8-18 * * *", tz=BERLIN), resize_image.bind("poster-tide", 1280)),
    "stock-hamburg": (Every("5m"), sync_stock.bind("hamburg")),
    "stock-rotterdam": (Every("15m"), sync_stock.bind("rotterdam")),
}
for name, (timing, what) in SCHEDULES.items():
    tasks.schedule(name, timing, what, overlap="skip" if name == "stock-hamburg" else "allow")
