"""Records what DuckDB makes of arithmetic on the extremes of every integer and decimal type.

    pip install duckdb && python testdata/arithmetic/record_answers.py

Writes `answers.tsv` beside itself: the type, the left side, the operator, the right side, and the result as text, or
`error` where it does not fit its type. Left out is what the two engines mean otherwise: a division by zero is NULL
there, and the remainder of the least integer by -1 is an error there, and 0 in PostgreSQL and here.
"""

import pathlib

import duckdb

SIGNED = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64}
DECIMALS = {"DECIMAL(38,0)": (38, 0), "DECIMAL(38,10)": (38, 10), "DECIMAL(20,2)": (20, 2)}


def decimal(unscaled, scale):
    digits = f"{abs(unscaled):0{scale + 1}d}"
    text = digits if scale == 0 else f"{digits[:-scale]}.{digits[-scale:]}"
    return ("-" if unscaled < 0 else "") + text


def operands():
    for name, bits in SIGNED.items():
        yield name, [str(v) for v in (-(2**bits), -1, 0, 1, 2, 2**bits - 1)]
    for name, bits in UNSIGNED.items():
        yield name, [str(v) for v in (0, 1, 2, 2**bits - 2, 2**bits - 1)]
    for name, (digits, scale) in DECIMALS.items():
        most = 10**digits - 1
        yield name, [decimal(v, scale) for v in (-most, -(10 ** (digits // 2)), -1, 0, 1, 10**scale, most)]


def result(connection, name, left, operator, right):
    expression = f"'{left}'::{name} {operator} '{right}'::{name}"
    try:
        return connection.sql(f"SELECT ({expression})::VARCHAR").fetchone()[0]
    except duckdb.OutOfRangeException:
        return "error"


def main():
    connection = duckdb.connect()
    lines = []
    for name, values in operands():
        operators = ("+", "-", "*") if name.startswith("DECIMAL") else ("+", "-", "*", "/", "%")
        for operator in operators:
            for left in values:
                for right in values:
                    if operator in "/%" and right == "0" or operator == "%" and right == "-1":
                        continue
                    theirs = "//" if operator == "/" else operator
                    lines.append("\t".join((name, left, operator, right, result(connection, name, left, theirs, right))))
    path = pathlib.Path(__file__).with_name("answers.tsv")
    path.write_text("".join(line + "\n" for line in lines))


main()
