"""A Django project whose view places an order and enqueues a task in one transaction.

Look at `shop/views.py` and `shop/tasks.py`. `holdfast_app.py` is for the worker what `wsgi.py` is for the web server.

    cd examples/django_app
    holdfast pg start && holdfast migrate              # or set HOLDFAST_URL to your PostgreSQL
    python manage.py migrate --run-syncdb
    python manage.py runserver                         # and in a second terminal:
    holdfast worker holdfast_app
    curl -d item=book -d quantity=2 localhost:8000/orders/          # in a third
    curl localhost:8000/orders/1/
"""

# Django has no types.
# mypy: disable-error-code="import-untyped"

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
