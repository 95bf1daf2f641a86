"""RE2 through Arrow's compute kernels: a C++ loop over the bytes of a column, one thread for each part of the rows.

A statement is `COLUMN like PATTERN` or `COLUMN regex PATTERN`; the answer has the matching strings.
"""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from driver import Engine, read_table, serve


class Re2(Engine):
    version = f"in Arrow {pa.__version__}"

    def start(self, threads: int) -> None:
        self.workers = ThreadPoolExecutor(threads)
        self.tables: dict[str, pa.Table] = {}

    def load(self, table: str, file: str) -> None:
        self.tables[table] = read_table(file)

    def drop(self, table: str) -> None:
        del self.tables[table]

    def run(self, client, request: dict):
        column, kind, pattern = request["statement"].split(" ", 2)
        matches = pc.match_like if kind == "like" else pc.match_substring_regex

        def select(strings: pa.Array) -> pa.Array:
            return strings.filter(matches(strings, pattern))

        return pa.chunked_array(self.workers.map(select, self.tables[request["table"]][column].chunks))

    def table(self, result) -> pa.Table:
        return pa.table({"matches": result})


if __name__ == "__main__":
    serve(Re2())
