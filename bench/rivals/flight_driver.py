"""Remote memory without push-down: Arrow Flight serves the whole columns that a statement needs, and DuckDB runs the
statement at the client.

The server is a separate process that holds Arrow tables in memory.
"""

import json
import sys

import duckdb
import pyarrow as pa
import pyarrow.flight as flight

from driver import Engine, Server, read_table, serve


class Tables(flight.FlightServerBase):
    """Flight server; a ticket is a table and the columns to send."""

    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.tables: dict[str, pa.Table] = {}

    def do_get(self, context, ticket: flight.Ticket) -> flight.RecordBatchStream:
        wanted = json.loads(ticket.ticket)
        return flight.RecordBatchStream(self.tables[wanted["table"]].select(wanted["columns"]))


class ServerProcess(Engine):
    """Engine in the server's process, which executes the client's requests."""

    def start(self, threads: int) -> None:
        pa.set_cpu_count(threads)
        self.server = Tables()
        self.version = f"grpc://127.0.0.1:{self.server.port}"

    def load(self, table: str, file: str) -> None:
        self.server.tables[table] = read_table(file)

    def drop(self, table: str) -> None:
        del self.server.tables[table]


class Client(Engine):
    version = f"{pa.__version__}, DuckDB {duckdb.__version__}"

    def start(self, threads: int) -> None:
        self.threads = threads
        self.server = Server(__file__)
        self.location = self.server.request({"do": "start", "threads": threads})["version"]

    def load(self, table: str, file: str) -> None:
        self.server.request({"do": "load", "table": table, "file": file})

    def drop(self, table: str) -> None:
        self.server.request({"do": "drop", "table": table})

    def client(self):
        database = duckdb.connect()
        database.execute(f"SET threads = {self.threads}")
        return flight.connect(self.location), database

    def run(self, client, request: dict):
        connection, database = client
        wanted = {"table": request["table"], "columns": request["columns"]}
        reader = connection.do_get(flight.Ticket(json.dumps(wanted))).to_reader()
        database.register(request["table"], reader)
        return database.sql(request["statement"]).to_arrow_table()


if __name__ == "__main__":
    serve(ServerProcess() if sys.argv[1:] == ["server"] else Client())
