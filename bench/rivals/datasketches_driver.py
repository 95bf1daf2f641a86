"""Apache DataSketches: HyperLogLog (HLL_8) or Count-Min of a column, one thread.

The wheel has no bulk update, so each value is a call. `map` avoids a loop in Python, yet the calls take most of the
time. A statement is "hll LG_K" or "cm ROWS LG_COUNTERS"; the answer is the number of distinct values (hll) or of all
values (cm).
"""

from collections import deque
from importlib.metadata import version

import datasketches
import pyarrow as pa

from driver import Engine, read_table, serve


class DataSketches(Engine):
    version = version("datasketches")

    def load(self, table: str, file: str) -> None:
        self.values = read_table(file).column(0).to_pylist()

    def drop(self, table: str) -> None:
        self.values = None

    def run(self, client, request: dict):
        kind, *shape = request["statement"].split()
        if kind == "hll":
            sketch = datasketches.hll_sketch(int(shape[0]), datasketches.tgt_hll_type.HLL_8)
        else:
            sketch = datasketches.count_min_sketch(int(shape[0]), 1 << int(shape[1]))
        deque(map(sketch.update, self.values), maxlen=0)
        return sketch.get_estimate() if kind == "hll" else sketch.total_weight

    def table(self, result) -> pa.Table:
        return pa.table({"n": [result]})


if __name__ == "__main__":
    serve(DataSketches())
