"""numpy: `corrcoef` over a matrix in memory, of the columns' type, with one matrix row for each column.

The statement is ignored: the answer is always one column with the coefficients of all pairs.
"""

import os

import pyarrow as pa

from driver import Engine, map_table, serve


class Numpy(Engine):
    def start(self, threads: int) -> None:
        # OpenBLAS reads the variable when it is loaded.
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
        import numpy

        self.numpy = numpy
        self.version = numpy.__version__
        self.matrices = {}

    def load(self, table: str, file: str) -> None:
        columns = map_table(file).columns
        self.matrices[table] = self.numpy.stack([column.to_numpy() for column in columns])

    def drop(self, table: str) -> None:
        del self.matrices[table]

    def run(self, client, request: dict):
        return self.numpy.corrcoef(self.matrices[request["table"]])

    def table(self, result) -> pa.Table:
        above = self.numpy.triu_indices(len(result), 1)
        return pa.table({"r": result[above]})


if __name__ == "__main__":
    serve(Numpy())
