"""DataFusion in this process: record batches in memory, one partition per thread; results as batches (see `owned`)."""

import datafusion
import pyarrow as pa

from driver import Engine, read_table, serve
from owned import Owned


class DataFusion(Engine):
    version = datafusion.__version__

    def start(self, threads: int) -> None:
        self.threads = threads
        self.owned = Owned(threads)
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))

    def load(self, table: str, file: str) -> None:
        source = read_table(file)
        self.owned.add(table, source)
        batches = source.to_batches()
        parts = [batches[part :: self.threads] for part in range(self.threads)]
        self.context.register_record_batches(table, [part for part in parts if part])

    def drop(self, table: str) -> None:
        self.context.deregister_table(table)
        self.owned.remove(table)

    def run(self, client, request: dict):
        frame = self.context.sql(request["statement"])
        return frame.schema(), self.owned.batches(request["table"], frame.collect())

    def table(self, result) -> pa.Table:
        schema, batches = result
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else schema)


if __name__ == "__main__":
    serve(DataFusion())
