"""DuckDB with its tables in a database file in the page cache, attached anew before each run.

DuckDB's buffer pool holds blocks decrypted and keeps them between runs. A database that was just attached has nothing
in the buffer pool, so that a run reads its blocks from the page cache.
"""

import importlib
import pathlib
import tempfile

import duckdb

from driver import Engine, map_table, serve


def connect(threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    # The extension contains OpenSSL, which DuckDB needs to write encrypted databases.
    package = importlib.import_module("duckdb_extension_httpfs")
    file = next(pathlib.Path(package.__file__).parent.rglob("httpfs.duckdb_extension"))
    connection.execute(f"LOAD '{file}'")
    connection.execute(f"SET threads = {threads}")
    return connection


class DuckDbFile(Engine):
    version = duckdb.__version__
    # Options of ATTACH, each as `KEY VALUE`.
    options: list[str] = []

    def start(self, threads: int) -> None:
        self.threads = threads
        self.folder = tempfile.TemporaryDirectory()
        self.connection = connect(threads)
        self.attached = None

    def load(self, table: str, file: str) -> None:
        source = map_table(file)  # DuckDB finds the variable by name
        self.attach(table, [])
        self.connection.execute(f"CREATE TABLE {table} AS FROM source")
        self.connection.execute("CHECKPOINT")

    def drop(self, table: str) -> None:
        self.detach()
        self.file(table).unlink()

    def client(self):
        self.attach(self.attached, ["READ_ONLY"])
        return self.connection

    def run(self, client, request: dict):
        return client.sql(request["statement"]).to_arrow_table()

    def file(self, table: str) -> pathlib.Path:
        return pathlib.Path(self.folder.name) / f"{table}.db"

    def attach(self, table: str, options: list[str]) -> None:
        self.detach()
        given = options + self.options
        text = f" ({', '.join(given)})" if given else ""
        self.connection.execute(f"ATTACH '{self.file(table)}' AS kept{text}")
        self.connection.execute("USE kept")
        self.attached = table

    def detach(self) -> None:
        if self.attached is not None:
            self.connection.execute("USE memory")
            self.connection.execute("DETACH kept")
            self.attached = None


if __name__ == "__main__":
    serve(DuckDbFile())
