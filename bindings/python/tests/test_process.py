"""Tests of threads, forks, signals, failing nodes and the exit of the interpreter."""

import gc
import multiprocessing
import os
import resource
import sys
import threading
import time

import farpool
import polars as pl
import pytest

#: Takes minutes.
LONG = "select count(*) from generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) where (x * y) % 3 = 1"


def test_threads_share_a_pool(pool):
    pool.sql("create table t as select n, n % 10 as k from generate_series(1, 50000) g(n)")
    errors = []

    def ask(k):
        try:
            for _ in range(20):
                rows = pool.sql("select count(*), sum(n) from t where k = $1", [k]).fetchall()
                assert rows == [(5000, sum(range(k or 10, 50001, 10)))], rows
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_share_a_result(pool):
    result = pool.sql("select n from generate_series(1, 20000) g(n)")
    taken, threads = [], []
    for _ in range(4):
        threads.append(threading.Thread(target=lambda: taken.extend(iter(result.fetchone, None))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert sorted(n for n, in taken) == list(range(1, 20001))


def test_others_run_while_a_statement_runs(pool):
    done = threading.Event()

    def count():
        while not done.is_set():
            count.ticks += 1
            time.sleep(0.001)

    count.ticks = 0
    thread = threading.Thread(target=count)
    thread.start()
    pool.sql("select count(*) from generate_series(1, 3000) a(x), generate_series(1, 3000) b(y) where x * y > 5").fetchall()
    ticks = count.ticks
    done.set()
    thread.join()
    assert ticks > 3, "the interpreter was held"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_refuses_a_pool_and_can_open_its_own(pool):
    pool.sql("create table t as select 1 as n")
    result = pool.sql("from t")
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        told = []
        try:
            for use in (lambda: pool.sql("from t"), result.fetchall, pool.close, lambda: pool.load("u", pl.DataFrame({"n": [1]}))):
                try:
                    use()
                    told.append("no error")
                except farpool.ProgrammingError as error:
                    told.append(error.message)
            with farpool.open(memory="64MiB") as own:
                told.append(own.sql("select 41 + 1").fetchall())
            sender.send(told)
        finally:
            os._exit(0)
    assert receiver.poll(30), "the fork hangs"
    told = receiver.recv()
    os.waitpid(child, 0)
    assert told[-1] == [(42,)]
    assert all("before the process forked" in message for message in told[:-1]), told
    # The attempts of the fork did not affect the parent's result.
    assert result.fetchall() == [(1,)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_connection_of_its_parent_alone(node):
    with farpool.connect(node.url) as pool:
        pool.load("t", pl.DataFrame({"n": [1, 2, 3]}))
        for _ in range(3):
            child = os.fork()
            if child == 0:
                del pool
                gc.collect()
                os._exit(0)
            os.waitpid(child, 0)
            assert pool.sql("select sum(n) from t").fetchall() == [(6,)]


def interrupted(script, python, url=""):
    """Runs a script and interrupts it by SIGINT 0.7 s after its start; prints whether it stopped within 5 s."""
    whole = f"""
import farpool, os, signal, threading, time, sys
threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
{script}
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 5)
"""
    return python(whole, URL=url)


def test_ctrl_c_ends_a_statement(python):
    script = f"    farpool.open(memory='64MiB').sql({LONG!r}).fetchall()"
    assert interrupted(script, python) == "interrupted True\n"


PAIRS = "select count(*) from generate_series(1, 400000) a(n), generate_series(1, 400000) b(n)"
LIKES = "select count(*) from generate_series(1, 100000) a(n) join generate_series(1, 100000) b(n) on a.n::text like '%' || b.n::text || 'x'"


@pytest.mark.parametrize("statement", [PAIRS, LIKES])
def test_nothing_computes_after_ctrl_c(python, statement):
    script = f"""
    try:
        farpool.open(memory='64MiB').sql({statement!r}).fetchall()
    except KeyboardInterrupt:
        while True:
            before = time.process_time()
            time.sleep(0.5)
            # Threads that compute would use as much as passes.
            if time.process_time() - before < 0.1:
                raise
"""
    assert interrupted(script, python).startswith("interrupted")


def test_ctrl_c_ends_a_stream(python):
    # Exceptions cannot pass through Arrow's C stream interface: the consuming library raises its own error.
    script = f"""
    import pyarrow
    try:
        pyarrow.table(farpool.open(memory='64MiB').sql({LONG!r}))
    except pyarrow.ArrowException as error:
        assert "cancelled: KeyboardInterrupt" in str(error), error
        raise KeyboardInterrupt
"""
    assert interrupted(script, python) == "interrupted True\n"


def test_ctrl_c_cancels_at_the_node(python, node):
    with farpool.connect(node.url) as pool:
        pool.sql("create table t as select n, n::text as s from generate_series(1, 400000) g(n)")
        script = """
    p = farpool.connect(os.environ["URL"])
    while True:
        p.sql("select s, count(*), sum(n) from t where s like '%7%' group by s").fetchall()
"""
        assert interrupted(script, python, node.url) == "interrupted True\n"
        deadline = time.monotonic() + 5
        while pool.status()["programs_running"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pool.status()["programs_running"] == 0


def test_a_node_that_dies_is_an_error(node):
    pool = farpool.connect(node.url)
    pool.load("t", pl.DataFrame({"n": list(range(1000))}))
    result = pool.sql("from t")
    threading.Timer(0.3, node.kill).start()
    with pytest.raises(farpool.UnavailableError):
        while True:
            pool.sql("select sum(n) from t").fetchall()
    with pytest.raises(farpool.UnavailableError):
        result.fetchall()
    pool.close()


@pytest.mark.parametrize("daemon", [True, False])
def test_an_interpreter_exits_with_a_statement_under_way(python, daemon):
    # Python joins threads that are not daemons before it exits, so these get a short statement.
    query = LONG if daemon else "select count(*) from generate_series(1, 3000) a(x), generate_series(1, 3000) b(y)"
    script = f"""
import farpool, threading, time
p = farpool.open(memory="64MiB")
for _ in range(3):
    threading.Thread(target=lambda: p.sql({query!r}).fetchall(), daemon={daemon}).start()
time.sleep(0.5)
print("leaving")
"""
    started = time.monotonic()
    assert python(script) == "leaving\n"
    assert time.monotonic() - started < 20


def test_an_interpreter_exits_with_a_stream_under_way(python):
    script = f"""
import farpool, threading, time, pyarrow
p = farpool.open(memory="64MiB")
def read():
    try:
        pyarrow.table(p.sql({LONG!r}))
    except Exception:
        pass
threading.Thread(target=read, daemon=True).start()
rows = p.sql("select n from generate_series(1, 10000000) g(n)")
first = rows.fetchone()
time.sleep(0.3)
print("leaving", first)
"""
    assert python(script) == "leaving (1,)\n"


def test_an_interpreter_that_exits_completes_its_data_directory(python, tmp_path):
    script = "import farpool; p = farpool.open(memory='64MiB', data_dir='data'); _ = p.sql('create table t as select 1 as n')"
    python(script)
    with farpool.open(memory="64MiB", data_dir=tmp_path / "data") as pool:
        assert pool.sql("from t").fetchall() == [(1,)]


def test_memory_and_references_are_flat(pool):
    """Runs statements (``FARPOOL_STATEMENTS``, by default 10,000) and fetches their rows in every way."""
    pool.sql("create table t as select n, 'text ' || n as s from generate_series(1, 100) g(n)")
    count = int(os.environ.get("FARPOOL_STATEMENTS", 10_000))

    def some(count):
        for number in range(count):
            result = pool.sql("select n, s from t where n = $1", [number % 100])
            match number % 10:
                case 0:
                    result.arrow()
                case 1:
                    result.polars()
                case 2:
                    list(result)
                case 3:
                    result.fetchone()
                case 4:
                    repr(result)
                case 5:
                    result.receipt
                case _:
                    result.fetchall()

    some(1000)
    gc.collect()
    objects, used = len(gc.get_objects()), _resident()
    counts = sys.getrefcount(None), sys.getrefcount(farpool.Result)
    some(count)
    gc.collect()
    assert len(gc.get_objects()) - objects < 500
    assert abs(sys.getrefcount(farpool.Result) - counts[1]) < 50
    assert abs(sys.getrefcount(None) - counts[0]) < 5000
    assert _resident() - used < 30 << 20


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
