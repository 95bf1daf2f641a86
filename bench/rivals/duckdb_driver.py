"""DuckDB in this process: tables in memory, results by `to_arrow_table`.

With DUCKDB_FILE the tables are in a database file; DUCKDB_MEMORY limits the memory.
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
            source = map_table(file)  # DuckDB finds the variable by name
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM source")

    def drop(self, table: str) -> None:
        self.connection.execute(f"DROP TABLE {table}")

    def client(self):
        return self.connection.cursor()

    def run(self, client, request: dict):
        # DuckDB recommends `sql` for Arrow results: `execute` would copy the rows once more.
        return client.sql(request["statement"]).to_arrow_table()


if __name__ == "__main__":
    serve(DuckDb())
