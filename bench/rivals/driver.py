"""The benchmarks' side of the protocol with a rival: one JSON request a line in, one answer a line out.

    {"do": "start", "threads": N}                        {"version": TEXT}
    {"do": "load", "table": NAME, "file": FILE}          {"ms": ...}; an Arrow IPC or Parquet file
    {"do": "drop", "table": NAME}                        {}
    {"do": "run", "statement": TEXT, "table": NAME, "columns": [NAME, ...], "clients": N, "answer": FILE|null}
                                                         {"ms": ..., "rows": ..., "digest": ..., "wire": ...}
    {"do": "mix", "statements": [TEXT, ...], "clients": N, "folder": FOLDER}
                                                         {"ms": ..., "cpu_s": ..., "each_ms": [...]}

`columns` lists the columns that the statement needs. With N clients, N copies of the statement run at once, and the
time is that until the last one ends. The result is written to FILE, as an Arrow IPC file, if one is given; otherwise
the answer has its digest (see `digest`). `wire` is the number of bytes between a remote rival's server and its clients,
if the driver counts them. In a mix, each of the N clients takes the next statement as soon as it has the result of its
last one; afterwards FOLDER has the results as 0.arrow, 1.arrow, ... A request that only one rival knows is answered by
its engine's method `do_NAME`. An error is answered with {"error": TEXT}; the
process ends at the end of its input. Times are taken in this process, around execution and fetch, so that they exclude
the pipe, the JSON and the digest.
"""

import ctypes
import gc
import json
import pathlib
import queue
import subprocess
import sys
import threading
import time

import pyarrow as pa
from pyarrow import parquet

from digest import digest


class Engine:
    """Interface that a rival implements."""

    version = ""

    def start(self, threads: int) -> None:
        """Prepares an empty database that uses `threads` threads."""

    def load(self, table: str, file: str) -> None:
        """Copies a file into the engine's own memory."""
        raise NotImplementedError

    def drop(self, table: str) -> None:
        """Frees a table."""
        raise NotImplementedError

    def client(self):
        """Returns a connection or session for `run`; several may be in use at once."""
        return None

    def run(self, client, request: dict):
        """Runs a statement and fetches the whole result into memory."""
        raise NotImplementedError

    def table(self, result) -> pa.Table:
        """Converts the result of `run` to Arrow; not part of the measured time."""
        return result


class Server:
    """Server of a remote rival: a process of the same driver, `python DRIVER server`."""

    def __init__(self, program: str):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, program, "server"], **pipes)

    def request(self, request: dict) -> dict:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline() or '{"error": "the server has ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def read_table(file: str) -> pa.Table:
    """Reads an Arrow IPC or Parquet file into memory."""
    if file.endswith(".parquet"):
        return parquet.read_table(file)
    with pa.OSFile(file) as source:
        return pa.ipc.open_file(source).read_all()


def map_table(file: str) -> pa.Table:
    """Maps an Arrow IPC file into memory without a copy, or reads a Parquet file, for engines that copy the data that they
    load."""
    if file.endswith(".parquet"):
        return read_table(file)
    return pa.ipc.open_file(pa.memory_map(file)).read_all()


def write_table(table: pa.Table, file: str) -> None:
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def milliseconds(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


class Memory:
    """Releases the memory that a rival keeps of one statement, so that the other sides have it during the next one."""

    def __init__(self):
        self.statement = None
        self.libc = ctypes.CDLL(None)

    def release_before(self, statement: str) -> None:
        """Returns unused memory to the system when another statement begins. This affects only its first run, a
        warm-up."""
        if statement == self.statement:
            return
        self.statement = statement
        gc.collect()
        pa.default_memory_pool().release_unused()
        if hasattr(self.libc, "malloc_trim"):
            self.libc.malloc_trim(0)


memory = Memory()


def run(engine: Engine, request: dict) -> dict:
    memory.release_before(request["statement"])
    results, ms = at_once(engine, request)
    tables = [engine.table(result) for result in results]
    if request.get("answer"):
        write_table(tables[0], request["answer"])
        return {"ms": ms, "rows": tables[0].num_rows}
    digests = {digest(table) for table in tables}
    if len(digests) != 1:
        raise RuntimeError("the clients' answers differ")
    rows, value = digests.pop()
    return {"ms": ms, "rows": rows, "digest": value}


def at_once(engine: Engine, request: dict) -> tuple[list, float]:
    """Runs a statement with all clients at once. Returns their results, and the milliseconds until the last one
    ended."""
    if request["clients"] == 1:
        client = engine.client()
        start = time.perf_counter()
        return [engine.run(client, request)], milliseconds(start)
    clients = [engine.client() for _ in range(request["clients"])]
    results = [None] * len(clients)

    def one(number: int) -> None:
        results[number] = engine.run(clients[number], request)

    ms = in_threads(len(clients), one)
    return results, ms


def in_threads(count: int, work) -> float:
    """Calls `work` with 0, 1, ... in `count` threads. Returns the milliseconds until the last one ended."""
    errors = []

    def one(number: int) -> None:
        try:
            work(number)
        except Exception as error:  # raised below, in the thread that answers
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ms = milliseconds(start)
    if errors:
        raise errors[0]
    return ms


def mix(engine: Engine, request: dict) -> dict:
    """Runs statements with several clients, each of which takes the next one as soon as it is idle."""
    waiting = queue.SimpleQueue()
    for place, statement in enumerate(request["statements"]):
        waiting.put((place, {"statement": statement}))
    clients = [engine.client() for _ in range(request["clients"])]
    results = [None] * len(request["statements"])
    each_ms = [0.0] * len(results)

    def client(number: int) -> None:
        while True:
            try:
                place, statement = waiting.get_nowait()
            except queue.Empty:
                return
            start = time.perf_counter()
            results[place] = engine.run(clients[number], statement)
            each_ms[place] = milliseconds(start)

    before = time.process_time()
    ms = in_threads(len(clients), client)
    cpu_s = time.process_time() - before
    for place, result in enumerate(results):
        write_table(engine.table(result), str(pathlib.Path(request["folder"]) / f"{place}.arrow"))
    return {"ms": ms, "cpu_s": cpu_s, "each_ms": each_ms}


def answer(engine: Engine, request: dict) -> dict:
    if request["do"] == "start":
        engine.start(request["threads"])
        return {"version": engine.version}
    if request["do"] == "load":
        start = time.perf_counter()
        engine.load(request["table"], request["file"])
        return {"ms": milliseconds(start)}
    if request["do"] == "drop":
        engine.drop(request["table"])
        return {}
    if request["do"] == "mix":
        return mix(engine, request)
    if own := getattr(engine, f"do_{request['do']}", None):
        return own(request)
    return run(engine, request)


def serve(engine: Engine) -> None:
    # Standard output is for answers only, so the output of engines is redirected to standard error.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            result = answer(engine, json.loads(line))
        except Exception as error:  # the benchmark decides what to do about it
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)
