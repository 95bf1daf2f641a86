"""Django's cache and its sessions, over its own Redis backend: python django_cache.py PORT"""

import sys
import django
import redis
from django.conf import settings

PORT = int(sys.argv[1])
settings.configure(
    CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache",
                        "LOCATION": f"redis://127.0.0.1:{PORT}/3", "KEY_PREFIX": "site"}},
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    INSTALLED_APPS=["django.contrib.sessions"],
)
django.setup()
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import cache

client = redis.Redis(port=PORT, db=3)
cache.clear()
cache.set("page", {"title": "Keys"}, 30)
assert cache.get("page") == {"title": "Keys"}
assert client.keys("*") == [b"site:1:page"] and 0 < client.ttl("site:1:page") <= 30
assert cache.add("page", "other") is False and cache.add("hits", 1) is True
assert cache.incr("hits", 4) == 5 and cache.decr("hits") == 4
cache.set_many({"a": 1, "b": [2], "c": None}, timeout=None)
assert cache.get_many(["a", "b", "c", "d"]) == {"a": 1, "b": [2], "c": None}
assert client.ttl("site:1:a") == -1
assert cache.touch("a", 100) and 0 < client.ttl("site:1:a") <= 100
assert cache.get_or_set("computed", lambda: 42, 10) == 42
cache.delete_many(["a", "b"])
assert cache.has_key("c") and not cache.has_key("a")

session = SessionStore()
session["user"] = "Ada"
session.set_expiry(120)
session.save()
again = SessionStore(session.session_key)
assert again["user"] == "Ada" and again.get_expiry_age() == 120
assert 0 < client.ttl(f"site:1:{session.cache_key_prefix}{session.session_key}") <= 120
again.flush()
assert not SessionStore().exists(session.session_key)
cache.clear()
assert client.dbsize() == 0
print(f"Django {django.get_version()}: cache and sessions")
