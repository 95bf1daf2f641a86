"""Results in memory of their own.

An engine that keeps its tables as Arrow may answer with slices of a table, for instance when every row passes
a filter, or with views of the table's strings. All other sides end with rows in new memory at the client.
Such a result is therefore copied, within the time that counts; a result in new memory is left alone.
"""

import bisect
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa


class Owned:
    """Knows the memory of the tables."""

    def __init__(self, threads: int):
        self.workers = ThreadPoolExecutor(threads)
        self.tables: dict[str, list[tuple[int, int]]] = {}

    def add(self, name: str, table: pa.Table) -> None:
        columns = [column for batch in table.to_batches() for column in batch.columns]
        buffers = [buffer for column in columns for buffer in column.buffers() if buffer is not None]
        self.tables[name] = sorted((buffer.address, buffer.address + buffer.size) for buffer in buffers)

    def remove(self, name: str) -> None:
        del self.tables[name]

    def batches(self, name: str, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The batches, those that lie in the memory of the table `name` copied."""
        ranges = self.tables[name]

        def own(batch: pa.RecordBatch) -> pa.RecordBatch:
            # The columns of a batch are all alike: one tells.
            if not lies_in(batch.column(0), ranges):
                return batch
            return pa.RecordBatch.from_arrays([copied(column) for column in batch.columns], batch.schema.names)

        return list(self.workers.map(own, batches))


def lies_in(column: pa.Array, ranges: list[tuple[int, int]]) -> bool:
    last = column.buffers()[-1]
    if last is None:
        return False
    before = bisect.bisect_right(ranges, (last.address, float("inf"))) - 1
    return before >= 0 and last.address < ranges[before][1]


def copied(column: pa.Array) -> pa.Array:
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    # Two parts are joined in new memory; one would be given back as it is.
    half = len(column) // 2
    return pa.concat_arrays([column.slice(0, half), column.slice(half)])
