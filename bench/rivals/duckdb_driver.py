"""DuckDB in-process: tables in memory, results by `to_arrow_table`.

With DUCKDB_FILE they are in a database file, and DUCKDB_MEMORY limits the memory.
"""

import os

import duckdb

from driver import Engine, map_table, serve


class DuckDb(Engine):
    version = duckdb.__version__

    def start(self, threads: int) -> None:
        self.connection = duckdb.connect(os.environ.get("DUCKDB_FILE", ":memory:"))
        if "DUCKDB_MEMORY" in os.environ:
            self.connection.execute(f"SET memory_limit = '{os.environ['DUCKDB_MEMORY']}'")
        self.connection.execute(f"SET threads = {threads}")

    def load(self, table: str, file: str) -> None:
        if file.endswith(".parquet"):
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM '{file}'")
        else:
            source = map_table(file)  # found by its name
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM source")

    def drop(self, table: str) -> None:
        self.connection.execute(f"DROP TABLE {table}")

    def client(self):
        return self.connection.cursor()

    def run(self, client, request: dict):
        # The route that DuckDB recommends: `execute` would copy the rows once more.
        return client.sql(request["statement"]).to_arrow_table()


if __name__ == "__main__":
    serve(DuckDb())
