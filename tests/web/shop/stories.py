"""What happens to the shop's tasks: the ways they go, what they are about, and what goes wrong."""

import random
from dataclasses import dataclass
from typing import Any

Error = dict[str, Any]

CUSTOMERS = (
    "ada.lovelace",
    "grace.hopper",
    "alan.turing",
    "edsger.dijkstra",
    "barbara.liskov",
    "ken.thompson",
    "mary.jackson",
)
ITEMS = ("mug-blue", "notebook-a5", "lamp-oak", "poster-tide", "pencil-2b", "bag-canvas")
WAYS = {
    "order": ["ReserveStock", "ChargeCard", "PackParcel", "ShipParcel"],
    "invoice": ["RenderInvoice", "SendInvoice"],
    "report": ["CollectSales", "RenderReport"],
}


def way_of(kind: str, chance: random.Random) -> list[str]:
    """The steps of a task that comes to its end."""
    if kind == "order" and chance.random() < 0.07:
        return ["ReserveStock", "ChargeCard", "ReleaseStock"]
    if kind == "order" and chance.random() < 0.08:
        return ["ReserveStock", "AwaitRestock", *WAYS["order"]]
    return WAYS.get(kind, ["main"])


def args_of(kind: str, order: int, chance: random.Random) -> dict[str, Any]:
    """What it is about."""
    customer = f"{chance.choice(CUSTOMERS)}@example.com"
    items = {item: chance.randint(1, 3) for item in chance.sample(ITEMS, chance.randint(1, 2))}
    about: dict[str, dict[str, Any]] = {
        "order": {"order_id": order, "customer": customer, "items": items},
        "invoice": {"order_id": order, "country": chance.choice(["DE", "FR", "NL", "AT"])},
        "report": {"days": 1},
        "send_mail": {
            "to": customer,
            "template": chance.choice(["order_confirmed", "parcel_sent", "welcome", "review_request"]),
        },
        "sync_stock": {"warehouse": chance.choice(["hamburg", "rotterdam"])},
        "import_prices": {"supplier": "northwind"},
        "resize_image": {"product": chance.choice(ITEMS), "width": chance.choice([320, 640, 1280])},
    }
    return about[kind]


def _error(type: str, message: str, *lines: tuple[str, int, str, str], causes: list[Error] | None = None) -> Error:
    """As a worker keeps it: lines are file, line, function and code."""
    told = "".join(
        f'  File "/srv/shop/{file}", line {line}, in {function}\n    {code}\n' for file, line, function, code in lines
    )
    traceback = f"Traceback (most recent call last):\n{told}{type}: {message}\n" if lines else ""
    return {"type": type, "message": message, "traceback": traceback, "causes": causes or []}


SMTP = _error(
    "SMTPServerDisconnected",
    "Connection unexpectedly closed",
    ("mail/sending.py", 41, "send_mail", "await server.send(message)"),
    ("mail/server.py", 88, "send", "return self._answer()"),
)
TIMEOUT = _error(
    "httpx.ReadTimeout",
    "no answer from payments.example.com within 10 s",
    ("orders/steps.py", 63, "run", "payment = await charge(self.order_id, self.customer)"),
    ("payments/client.py", 27, "charge", 'response = await client.post("/charges", json=body)'),
)
GATEWAY = _error(
    "PaymentGatewayError",
    "502 Bad Gateway for POST /charges (request 7f3a91)",
    ("orders/steps.py", 63, "run", "payment = await charge(self.order_id, self.customer)"),
    ("payments/client.py", 31, "charge", "raise PaymentGatewayError(response) from error"),
    causes=[
        _error(
            "httpx.HTTPStatusError",
            "Server error '502 Bad Gateway' for url 'https://payments.example.com/charges'",
            ("payments/client.py", 28, "charge", "response.raise_for_status()"),
        )
    ],
)
LABEL = _error(
    "KeyError",
    "'postal_code'",
    ("orders/steps.py", 118, "run", "label = await carrier.label(address)"),
    ("orders/carriers.py", 54, "label", 'code = address["postal_code"].strip()'),
)
TAX = _error("Fail", "no rate of tax is known for 'CH'")
BOUNCED = _error(
    "SMTPRecipientsRefused",
    "550 5.1.1 mailbox does not exist",
    ("mail/sending.py", 41, "send_mail", "await server.send(message)"),
)
IMAGE = _error(
    "PIL.UnidentifiedImageError",
    "cannot identify image file 'poster-tide.heic'",
    ("media/images.py", 22, "resize_image", "with Image.open(path) as picture:"),
)
CSV = _error(
    "ValueError",
    "line 1204: expected 7 columns, found 6",
    ("stock/prices.py", 35, "import_prices", "for price in read(file):"),
    ("stock/prices.py", 61, "read", "raise ValueError(wrong(row))"),
)

ERRORS = {
    "order": [TIMEOUT, GATEWAY],
    "invoice": [TIMEOUT],
    "report": [TIMEOUT],
    "send_mail": [SMTP],
    "sync_stock": [TIMEOUT],
    "import_prices": [CSV],
    "resize_image": [TIMEOUT],
}


@dataclass(frozen=True)
class Parked:
    """Tasks that stopped alike: how many, for how many minutes, and what each is about besides."""

    kind: str
    step: str
    error: Error
    count: int
    minutes: int
    errors: int = 1
    about: tuple[tuple[str, Any], ...] = ()


PARKED = (
    Parked("order", "ChargeCard", GATEWAY, 23, 34, errors=5),
    Parked("order", "ShipParcel", LABEL, 4, 180),
    Parked("invoice", "RenderInvoice", TAX, 6, 320, about=(("country", "CH"),)),
    Parked("send_mail", "main", BOUNCED, 9, 600),
    Parked("resize_image", "main", IMAGE, 2, 55, errors=4, about=(("product", "poster-tide"),)),
)
