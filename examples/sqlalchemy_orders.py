"""An order and the task that follows from it, in one transaction of a SQLAlchemy session.

Committed, both exist; rolled back, neither does: no mail without an order, no order without its mail.
With an `AsyncSession` it is the same with `await app.enqueue(…, conn=session)`.

    holdfast dev examples/sqlalchemy_orders.py
    python examples/sqlalchemy_orders.py        # in a second terminal: places three orders, one of them too large
"""

import logging

import psycopg
from sqlalchemy import CheckConstraint, create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import App, Retry

log = logging.getLogger("orders")
app = App()
# The same database as the tasks. In a program of your own it is create_engine("postgresql+psycopg://…").
engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(app.database.url))


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"
    __table_args__ = (CheckConstraint("pieces >= 0", name="enough_in_stock"),)

    item: Mapped[str] = mapped_column(primary_key=True)
    pieces: Mapped[int]


class Order(Base):
    __tablename__ = "placed_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    quantity: Mapped[int]
    confirmation: Mapped[str | None] = mapped_column(default=None)


@app.task(retry=Retry(5, delay="2s"))
def confirm_order(order_id: int) -> str:
    with Session(engine) as session, session.begin():
        order = session.scalars(select(Order).where(Order.id == order_id).with_for_update()).one()
        if order.confirmation is None:  # a step may be executed again: the second time there is nothing to do
            order.confirmation = f"{order.quantity} x {order.item}: on its way"
            log.info("mail: %s", order.confirmation)
        return order.confirmation


def place_order(session: Session, item: str, quantity: int) -> Order:
    order = Order(item=item, quantity=quantity)
    session.add(order)
    session.flush()  # now it has an id
    app.sync.enqueue(confirm_order.bind(order.id), conn=session)
    session.get_one(
        Stock, item, with_for_update=True
    ).pieces -= quantity  # written by the commit, which the database may refuse
    return order


def main() -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for item in ("book", "lamp", "sofa"):
            session.merge(Stock(item=item, pieces=10))
    for item, quantity in [("book", 1), ("lamp", 2), ("sofa", 1000)]:
        try:
            with Session(engine) as session, session.begin():
                number = place_order(session, item, quantity).id
            print(f"order {number}: {quantity} x {item}")
        except IntegrityError as error:
            print(f"{quantity} x {item}: no order, and no task, because the database said: {error.orig}")
    engine.dispose()


if __name__ == "__main__":
    main()
