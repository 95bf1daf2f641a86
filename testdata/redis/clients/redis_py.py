"""What a service does with redis-py, over RESP2 and RESP3: python redis_py.py PORT"""

import sys
import threading
import redis


def strings_and_hashes(client):
    client.flushall()
    assert client.set("greeting", "hello", ex=60) is True
    assert client.get("greeting") == b"hello"
    assert 0 < client.ttl("greeting") <= 60
    assert client.set("greeting", "other", nx=True) is None
    assert client.incrby("count", 41) == 41 and client.incr("count") == 42
    assert client.mget("count", "none", "greeting") == [b"42", None, b"hello"]
    assert client.hset("users:1", mapping={"name": "Ada", "city": "London"}) == 2
    assert client.hgetall("users:1") == {b"name": b"Ada", b"city": b"London"}
    assert client.hincrby("users:1", "age", 36) == 36
    assert client.delete("count", "none") == 1
    value = bytes(range(256)) * 5000
    assert client.set("large", value) and client.get("large") == value
    try:
        client.incr("greeting")
        raise AssertionError("a text is no number")
    except redis.ResponseError as error:
        assert "not an integer" in str(error)


def scans(client):
    client.flushall()
    names = {b"key:%d" % i for i in range(3000)}
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, "x")
        assert all(pipe.execute())
    assert set(client.scan_iter(match="key:*", count=100)) == names
    client.hset("hash", mapping={f"field:{i}": i for i in range(3000)})
    assert dict(client.hscan_iter("hash", count=100)) == {b"field:%d" % i: b"%d" % i for i in range(3000)}


def transactions(client):
    """Four threads add to a number by WATCH, MULTI and EXEC: nothing gets lost."""
    client.set("sum", 0)

    def add():
        def step(pipe):
            value = int(pipe.get("sum"))
            pipe.multi()
            pipe.set("sum", value + 1)

        for _ in range(50):
            client.transaction(step, "sum")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("sum") == b"200"


def hyperloglogs(client):
    client.pfadd("seen", *range(1000))
    assert 950 <= client.pfcount("seen") <= 1050


for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol, client_name="test")
    assert client.ping() and client.client_getname() in (b"test", "test")
    assert client.info("server")["redis_version"].startswith("7.")
    for part in (strings_and_hashes, scans, transactions, hyperloglogs):
        part(client)
print(f"redis-py {redis.__version__}: strings, hashes, scans, transactions, HyperLogLogs, over RESP2 and RESP3")
