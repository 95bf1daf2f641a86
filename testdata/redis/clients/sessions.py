"""A shop in Flask whose sessions are kept by Flask-Session, in two processes: python sessions.py PORT"""

import importlib.metadata
import subprocess
import sys
import flask
import flask_session
import msgspec
import redis

client = redis.Redis(port=int(sys.argv[1]))
app = flask.Flask("shop")
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=client, PERMANENT_SESSION_LIFETIME=600)
flask_session.Session(app)


@app.post("/cart/<item>")
def put(item):
    cart = flask.session.get("cart", {})
    cart[item] = cart.get(item, 0) + 1
    flask.session["cart"] = cart
    return cart


@app.get("/cart")
def cart():
    return flask.session.get("cart", {})


@app.post("/leave")
def leave():
    flask.session.clear()
    return {}


def another_process(cookie):
    """The web server's other process sees the cart of the same cookie."""
    shown = subprocess.check_output([sys.executable, __file__, sys.argv[1], cookie], text=True)
    assert shown.strip() == '{"apple":2,"pear":1}', shown


if len(sys.argv) > 2:
    browser = app.test_client()
    browser.set_cookie("session", sys.argv[2])
    print(browser.get("/cart").get_data(as_text=True))
    sys.exit()

client.flushall()
ada, bob = app.test_client(), app.test_client()
for item in ("apple", "pear", "apple"):
    assert ada.post(f"/cart/{item}").status_code == 200
bob.post("/cart/plum")
assert ada.get("/cart").json == {"apple": 2, "pear": 1}
assert bob.get("/cart").json == {"plum": 1}

stored = {key: msgspec.msgpack.decode(client.get(key)) for key in client.scan_iter("session:*")}
cookie = ada.get_cookie("session").value
assert len(stored) == 2, stored
assert stored[f"session:{cookie}".encode()]["cart"] == {"apple": 2, "pear": 1}, stored
assert all(0 < client.ttl(key) <= 600 for key in stored)
another_process(cookie)

ada.post("/leave")
assert ada.get("/cart").json == {} and client.get(f"session:{cookie}") is None
client.pexpire(f"session:{bob.get_cookie('session').value}", 1)
while client.dbsize():
    pass
assert bob.get("/cart").json == {}
version = importlib.metadata.version
print(f"Flask {version('flask')} with Flask-Session {version('flask-session')}: sessions of two browsers and processes")
