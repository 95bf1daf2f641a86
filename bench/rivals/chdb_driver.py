"""chDB (ClickHouse in this process): tables with the engine Memory, results in the format Arrow."""

import chdb
import pyarrow as pa
from chdb.session import Session

from driver import Engine, serve


class ChDb(Engine):
    version = chdb.__version__

    def start(self, threads: int) -> None:
        self.session = Session()
        self.session.query(f"SET max_threads = {threads}")

    def load(self, table: str, file: str) -> None:
        source = f"file('{file}', Arrow)"
        self.session.query(f"CREATE TABLE {table} ENGINE = Memory AS SELECT * FROM {source}")

    def drop(self, table: str) -> None:
        self.session.query(f"DROP TABLE {table}")

    def run(self, client, request: dict):
        return self.session.query(request["statement"], "ArrowTable")


if __name__ == "__main__":
    serve(ChDb())
