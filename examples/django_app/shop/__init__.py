"""A shop with orders and receipts."""
