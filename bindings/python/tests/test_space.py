"""Tests of key-value spaces that Redis clients share with Python."""

import re
import socket
import time

import farpool
import pytest
from conftest import Node


class Redis:
    """A client of the subset of the Redis protocol that the tests need."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._file = self._socket.makefile("rwb")

    def close(self):
        self._file.close()
        self._socket.close()

    def __call__(self, *words):
        self._file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        self._file.flush()
        line = self._file.readline().rstrip()
        if line[:1] == b"$" and line != b"$-1":
            return self._file.read(int(line[1:]) + 2)[:-2].decode()
        return None if line == b"$-1" else line[1:].decode()


@pytest.fixture
def both(tmp_path):
    node = Node(tmp_path, "--resp", "127.0.0.1:0")
    deadline = time.monotonic() + 10
    found = None
    while found is None and time.monotonic() < deadline:
        node.log.seek(0)
        found = re.search(r"redis://([0-9.]+:[0-9]+)", node.log.read())
        time.sleep(0.02)
    assert found, "the node did not say where it speaks the Redis protocol"
    redis = Redis(found[1])
    with farpool.connect(node.url) as pool:
        yield pool, redis
    redis.close()
    node.stop()


def test_a_space_is_a_dictionary(both):
    pool, redis = both
    assert redis("FP.SPACE", "CREATE", "carts") == "OK"
    carts = pool.space("carts")
    assert dict(carts) == {} and len(carts) == 0
    carts["carts:1"] = "apples"
    assert redis("GET", "carts:1") == "apples"
    redis("SET", "carts:2", "pears")
    assert carts["carts:2"] == "pears" and "carts:2" in carts and "carts:3" not in carts
    carts[b"carts:2"] = b"plums"
    assert redis("GET", "carts:2") == "plums"
    assert dict(carts.items()) == {"carts:1": "apples", "carts:2": "plums"} and sorted(carts) == ["carts:1", "carts:2"]
    assert carts.get("carts:9", "none") == "none"
    assert carts.pop("carts:1") == "apples" and redis("GET", "carts:1") is None
    with pytest.raises(KeyError):
        carts["carts:1"]
    with pytest.raises(KeyError):
        del carts["carts:1"]
    carts.update({"carts:5": "five", "carts:6": "six"})
    assert pool.sql("select count(*) from carts where value like '%i%'").fetchall() == [(2,)]
    carts.clear()
    assert len(carts) == 0
    with pytest.raises(farpool.Error):
        carts["elsewhere"] = "no key of this space"


def test_a_space_with_columns_has_rows(both):
    pool, redis = both
    assert redis("FP.SPACE", "CREATE", "users", "id u64, name utf8, age u32") == "OK"
    users = pool.space("users")
    users[1] = {"name": "Ada", "age": 36}
    assert redis("HGET", "users:1", "name") == "Ada"
    users[1] = {"age": 37}
    assert users[1] == {"name": "Ada", "age": 37}
    redis("HSET", "users:2", "name", "Bob")
    assert users[2] == {"name": "Bob", "age": None} and sorted(users) == [1, 2]
    with pytest.raises(farpool.InterfaceError, match="dictionary of its columns"):
        users[3] = {"nosuch": 1}
    with pytest.raises(farpool.NotFoundError):
        pool.space("nosuch")
