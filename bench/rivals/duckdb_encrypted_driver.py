"""The driver `duckdb_file_driver.py` with a database file encrypted by AES-256-GCM (OpenSSL): each run decrypts the
blocks that it reads."""

from driver import serve
from duckdb_file_driver import DuckDbFile


class DuckDbEncrypted(DuckDbFile):
    options = ["ENCRYPTION_KEY 'any text of some length'", "ENCRYPTION_CIPHER 'GCM'"]


if __name__ == "__main__":
    serve(DuckDbEncrypted())
