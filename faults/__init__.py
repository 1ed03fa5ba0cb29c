"""Faults: real workers under real faults, watched by a log of their own. `make faults`, or `python -m faults`.

load ──► workers (processes) ──► database (a server of our own)        a fault disturbs one of the three
 │          │                       │
 ▼          ▼                       ▼
ledger    oracle                 history ──► checker ──► report
"""
