CREATE TABLE t AS SELECT
    CAST(c1 AS BIGINT) AS id, CAST(c2 AS INTEGER) AS a, CAST(c3 AS INTEGER) AS b, CAST(c4 AS VARCHAR) AS s
FROM (VALUES
    (1, 1, 2, 'x'), (2, 1, NULL, 'y'), (3, 2, 2, NULL), (4, 2, 3, 'x'), (5, NULL, 1, 'z'), (6, NULL, NULL, NULL),
    (7, 3, 0, 'y'), (8, 4, 4, 'x'), (9, 4, 1, ''), (10, 5, 5, 'z'), (11, 0, 2, 'y'), (12, 2, 2, 'x')
) AS v(c1, c2, c3, c4);
CREATE TABLE u AS SELECT
    CAST(c1 AS BIGINT) AS id, CAST(c2 AS INTEGER) AS a, CAST(c3 AS INTEGER) AS c, CAST(c4 AS VARCHAR) AS s
FROM (VALUES
    (1, 1, 1, 'x'), (2, 1, 3, 'y'), (3, 2, NULL, 'x'), (4, 2, 2, NULL), (5, 2, 4, 'z'), (6, NULL, 2, 'y'),
    (7, 7, NULL, 'x'), (8, 4, 0, 'q'), (9, NULL, NULL, NULL), (10, 3, 3, 'x')
) AS v(c1, c2, c3, c4);
CREATE TABLE w AS SELECT
    CAST(c1 AS BIGINT) AS id, CAST(c2 AS INTEGER) AS a, CAST(c3 AS INTEGER) AS b
FROM (VALUES (1, 1, 2), (2, 2, 2), (3, 3, NULL), (4, 8, 1), (5, NULL, 5), (6, 2, 0)) AS v(c1, c2, c3);
CREATE TABLE e AS SELECT CAST(c1 AS BIGINT) AS id, CAST(c2 AS INTEGER) AS a, CAST(c3 AS INTEGER) AS b
FROM (VALUES (1, 1, 1)) AS v(c1, c2, c3) WHERE c1 > 1
