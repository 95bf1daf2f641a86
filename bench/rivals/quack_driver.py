"""DuckDB's own client and server, the extension `quack`: the server executes whole statements.

Statements are sent with `quack_query`. A statement that names its table `remote.TABLE` uses the attached database,
where DuckDB decides which operations to push down. The server is a separate process.
"""

import importlib
import pathlib
import socket
import sys

import duckdb

from driver import Engine, Server, map_table, serve

TOKEN = "farpool_bench"


def connect(threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "quack"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        file = next(pathlib.Path(package.__file__).parent.rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD '{file}'")
    connection.execute(f"SET threads = {threads}")
    return connection


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess(Engine):
    def start(self, threads: int) -> None:
        self.connection = connect(threads)
        address = f"quack:localhost:{free_port()}"
        self.connection.sql(f"FROM quack_serve('{address}', token = '{TOKEN}')").fetchall()
        self.version = address

    def load(self, table: str, file: str) -> None:
        source = map_table(file)  # DuckDB finds the variable by name
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM source")

    def drop(self, table: str) -> None:
        self.connection.execute(f"DROP TABLE {table}")


class Client(Engine):
    version = duckdb.__version__

    def start(self, threads: int) -> None:
        self.threads = threads
        self.server = Server(__file__)
        self.address = self.server.request({"do": "start", "threads": threads})["version"]

    def load(self, table: str, file: str) -> None:
        self.server.request({"do": "load", "table": table, "file": file})

    def drop(self, table: str) -> None:
        self.server.request({"do": "drop", "table": table})

    def client(self):
        connection = connect(self.threads)
        connection.execute(f"CREATE SECRET (TYPE quack, TOKEN '{TOKEN}')")
        connection.execute(f"ATTACH '{self.address}' AS remote")
        return connection

    def run(self, client, request: dict):
        statement = request["statement"]
        if f"remote.{request['table']}" not in statement:
            quoted = statement.replace("'", "''")
            statement = f"FROM quack_query('{self.address}', '{quoted}', token = '{TOKEN}')"
        return client.sql(statement).to_arrow_table()


if __name__ == "__main__":
    serve(ServerProcess() if sys.argv[1:] == ["server"] else Client())
