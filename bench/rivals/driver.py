"""The benchmarks' side of the protocol with a rival: one JSON request a line in, one answer a line out.

    {"do": "start", "threads": N}                        {"version": TEXT}
    {"do": "load", "table": NAME, "file": FILE}          {"ms": ...}; an Arrow IPC or Parquet file
    {"do": "drop", "table": NAME}                        {}
    {"do": "run", "statement": TEXT, "table": NAME, "columns": [NAME, ...], "clients": N, "answer": FILE|null}
                                                         {"ms": ..., "rows": ..., "digest": ..., "wire": ...}
    {"do": "mix", "statements": [TEXT, ...], "clients": N, "folder": FOLDER}
                                                         {"ms": ..., "cpu_s": ..., "each_ms": [...]}

`columns` are those that the statement needs. With N clients the statement runs N times at once, and the time
is that of all together. The result is written to FILE as an Arrow IPC file if one is given; otherwise its
digest is answered (see `digest`). `wire` are the bytes between a remote rival's server and its clients, where
the driver counts them. Of a mix, each of the N clients takes the next statement as soon as it has the result of
its last one; the results are in FOLDER as 0.arrow, 1.arrow, ... afterwards. An error answers {"error": TEXT}; the end of the input ends the process.
Times are taken here, around execution and fetch, so that the pipe, the JSON and the digest do not count.
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

from digest import digest


class Engine:
    """What a rival has to provide."""

    version = ""

    def start(self, threads: int) -> None:
        """Prepares an empty database that works with `threads` threads."""

    def load(self, table: str, file: str) -> None:
        """Copies a file into the engine's own memory."""
        raise NotImplementedError

    def drop(self, table: str) -> None:
        """Frees a table."""
        raise NotImplementedError

    def client(self):
        """Something that `run` can use beside others of its kind."""
        return None

    def run(self, client, request: dict):
        """Runs a statement and has all of the result in memory."""
        raise NotImplementedError

    def table(self, result) -> pa.Table:
        """The result of `run` as Arrow, outside the time that counts."""
        return result


class Server:
    """A process of the same driver that is the rival's server: `python DRIVER server`."""

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
    """An Arrow IPC file, copied into memory."""
    with pa.OSFile(file) as source:
        return pa.ipc.open_file(source).read_all()


def map_table(file: str) -> pa.Table:
    """An Arrow IPC file as it lies in the system's cache, for engines that copy what they load."""
    return pa.ipc.open_file(pa.memory_map(file)).read_all()


def write_table(table: pa.Table, file: str) -> None:
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def milliseconds(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


class Memory:
    """What a rival's process keeps of the results of one statement must not press the others during the next."""

    def __init__(self):
        self.statement = None
        self.libc = ctypes.CDLL(None)

    def release_before(self, statement: str) -> None:
        """Gives what is unused back to the system when another statement begins: its first run does not count."""
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
    """The results of all clients, and the milliseconds until the last one had its own."""
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
    """Calls `work` with 0, 1, ... in threads of their own; the milliseconds until the last one has ended."""
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
    """Statements by several clients, of which each takes the next one as soon as it is free."""
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
    return run(engine, request)


def serve(engine: Engine) -> None:
    # Only answers go out: what an engine prints is sent where messages go.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            result = answer(engine, json.loads(line))
        except Exception as error:  # the benchmark decides what to do about it
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)
