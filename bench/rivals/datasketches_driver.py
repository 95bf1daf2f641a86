"""Apache DataSketches: HyperLogLog (HLL_8) of a column. Its wheel takes value by value, and Python is most of the time.

A statement is "hll LG_K".
"""

import datasketches
import pyarrow as pa
from importlib.metadata import version

from driver import Engine, read_table, serve


class DataSketches(Engine):
    version = version("datasketches")

    def load(self, table: str, file: str) -> None:
        self.values = read_table(file).column(0).to_pylist()

    def drop(self, table: str) -> None:
        self.values = None

    def run(self, client, request: dict):
        sketch = datasketches.hll_sketch(int(request["statement"].split()[1]), datasketches.tgt_hll_type.HLL_8)
        update = sketch.update
        for value in self.values:
            update(value)
        return sketch.get_estimate()

    def table(self, result) -> pa.Table:
        return pa.table({"n": [result]})


if __name__ == "__main__":
    serve(DataSketches())
