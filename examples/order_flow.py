"""An order on its way: several steps, branches, a wait of two weeks, and what happens when it goes wrong.

    holdfast dev examples/order_flow.py
    holdfast enqueue order.Check item=book card=4242           # prints its id; holdfast show ID: it waits for two weeks
    holdfast enqueue order.Check item=lamp card=0002 --wait    # refused, because the card is declined
    holdfast enqueue order.Check item=bok card=4242            # a slip: the task is parked

The parked one goes on with repaired args: `holdfast retry ID --args '{"item": "book", "card": "4242"}'`.
`holdfast graph examples/order_flow.py` draws the way, from the return annotations.
"""

import logging
from dataclasses import dataclass

from holdfast import App, Context, Done, Fail, Later, Retry

log = logging.getLogger("orders")
app = App()
order = app.kind("order", result=str, retry=Retry(5, delay="2s", max_delay="5m"))

CATALOGUE = {"book": 3_000, "lamp": 12_000}  # prices in cents


@order.step
@dataclass
class Check:
    item: str
    card: str

    async def run(self) -> "Charge":
        if self.item not in CATALOGUE:
            raise Fail(f"there is no {self.item!r} in the catalogue")  # parked: no retry would change that
        return Charge(self.item, CATALOGUE[self.item], self.card)


@order.step(timeout="30s")
@dataclass
class Charge:
    item: str
    cents: int
    card: str

    async def run(self, ctx: Context) -> "Ship | Refuse":
        try:
            payment = await pay(self.card, self.cents, idempotency_key=ctx.idempotency_key)
        except CardDeclined as error:
            return Refuse(self.item, str(error))  # not a failure: an order can end like this
        return Ship(self.item, payment)


@order.step
@dataclass
class Ship:
    item: str
    payment: str

    async def run(self) -> "Later[AskForReview]":
        # The move that brought the task here is recorded: whatever happens now, nobody charges the card again.
        log.info("%s is on its way, paid by %s", self.item, self.payment)
        return Later(AskForReview(self.item), "14d")


@order.step
@dataclass
class AskForReview:
    item: str

    async def run(self) -> Done[str]:
        log.info("how do you like your %s?", self.item)
        return Done(f"{self.item}: shipped")


@order.step
@dataclass
class Refuse:
    item: str
    reason: str

    async def run(self) -> Done[str]:
        return Done(f"{self.item}: refused, {self.reason}")


# What a payment provider would do for us ------------------------------------------------------------


class CardDeclined(Exception):
    pass


PAYMENTS: dict[str, str] = {}


async def pay(card: str, cents: int, *, idempotency_key: str) -> str:
    """Charges a card. Asked again with the same key, it answers the same and charges nothing."""
    if card == "0002":
        raise CardDeclined("the card was declined")
    return PAYMENTS.setdefault(idempotency_key, f"payment {len(PAYMENTS) + 1} of {cents / 100:.2f}")
