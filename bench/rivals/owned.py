"""Copies of results that share memory with a table.

An engine that stores tables as Arrow may return slices of a table, for instance when every row passes a filter, or
views of the table's strings. All other sides end with rows in new memory at the client. For a fair comparison, such a
result is copied within the measured time; a result in new memory is not.
"""

import bisect
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa


class Owned:
    """Registry of the memory ranges of the tables."""

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
        """Returns the batches, with copies of those that lie in the memory of the table `name`. Results of statements
        over several tables, which have no `name`, are new memory."""
        if not name:
            return batches
        ranges = self.tables[name]

        def own(batch: pa.RecordBatch) -> pa.RecordBatch:
            # All columns of a batch lie in the table's memory or none does, so the first one decides.
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
    # `concat` of a single part would return it without a copy, so the column is split into two parts.
    half = len(column) // 2
    return pa.concat_arrays([column.slice(0, half), column.slice(half)])
