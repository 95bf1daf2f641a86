"""An order-independent digest of a result; the same as in `bench/src/digest.rs`.

The columns of a row are folded into 64 bits, which are mixed, and the mixed values of all rows are added up. Integers
of any type count as 64-bit two's complement; strings as their bytes in little-endian words, the last one padded with
zeros, followed by their length.
"""

import numpy as np
import pyarrow as pa

FOLD = np.uint64(0x9E3779B97F4A7C15)
MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
SHIFT = np.uint64(33)
# Rows per step, so that the intermediate arrays fit the CPU cache.
ROWS = 32 * 1024


def digest(table: pa.Table) -> tuple[int, str]:
    """Returns the number of rows, and the digest in hexadecimal."""
    total = 0
    for batch in table.to_batches(max_chunksize=ROWS):
        hashes = np.zeros(batch.num_rows, dtype=np.uint64)
        for column in batch.columns:
            fold(hashes, column)
        total += int(mixed(hashes).sum())
    return table.num_rows, f"{total % 2**64:016x}"


def fold(hashes: np.ndarray, column: pa.Array) -> None:
    if column.null_count:
        raise ValueError("a result with NULL has no digest")
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        add(hashes, column.cast(pa.int64()).to_numpy().view(np.uint64))
    elif pa.types.is_dictionary(kind):
        fold(hashes, column.cast(kind.value_type))
    else:
        fold_strings(hashes, column.cast(pa.large_binary()))


def add(hashes: np.ndarray, words: np.ndarray) -> None:
    np.multiply(hashes, FOLD, out=hashes)
    np.add(hashes, words, out=hashes)


def fold_strings(hashes: np.ndarray, column: pa.Array) -> None:
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset :][: len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        padded = np.zeros((len(rows), -(-int(length) // 8) * 8), dtype=np.uint8)
        if len(rows) == len(column):
            padded[:, :length] = data[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            padded[:, :length] = data[offsets[rows][:, None] + np.arange(length)]
        part = hashes[rows]
        for words in padded.view("<u8").T:
            add(part, words)
        add(part, np.uint64(length))
        hashes[rows] = part


def mixed(hashes: np.ndarray) -> np.ndarray:
    for factor in MIX:
        hashes ^= hashes >> SHIFT
        hashes *= factor
    hashes ^= hashes >> SHIFT
    return hashes
