"""A Flask application: blocking code all the way, with `app.sync`.

The web application only enqueues and asks; the work is done by a worker, which is a process of its own.

    holdfast dev examples/flask_app.py                 # a database and a worker
    flask --app examples/flask_app.py run              # in a second terminal
    curl -d url=https://example.org localhost:5000/checks          # in a third; it answers where to look
    curl 'localhost:5000/checks/ID?wait=10'
"""

from uuid import UUID

import httpx
from flask import Flask, Response, jsonify, request, url_for

from holdfast import App, Fail, NoResult, ResultTimeout, Retry, TaskNotFound

app = App()
web = Flask(__name__)


@app.task(retry=Retry(3, delay="2s", on=httpx.HTTPError), timeout="30s")
def check_page(url: str) -> int:
    """How large a page is. A plain function is executed in a thread."""
    if not url.startswith(("http://", "https://")):
        raise Fail(f"{url} is no web address")
    return len(httpx.get(url, timeout=20).raise_for_status().content)


@web.post("/checks")
def order_check() -> tuple[Response, int]:
    ref = app.sync.enqueue(check_page.bind(request.form["url"]), headers={"from": request.remote_addr or ""})
    return jsonify(id=str(ref.id), see=url_for("show_check", id=ref.id, _external=True)), 202


@web.get("/checks/<uuid:id>")
def show_check(id: UUID) -> tuple[Response, int]:
    ref = app.sync.ref(id, check_page)
    try:
        info = ref.info()
        if "wait" in request.args and info.state not in ("done", "parked"):
            ref.result(timeout=min(float(request.args["wait"]), 25))
            info = ref.info()
    except TaskNotFound:
        return jsonify(error="there is no such check"), 404
    except ResultTimeout:
        return jsonify(id=str(id), state="not yet"), 202
    except NoResult as error:
        return jsonify(id=str(id), error=str(error)), 409
    return jsonify(id=str(id), state=info.state, result=info.result, error=info.error and info.error["message"]), 200
