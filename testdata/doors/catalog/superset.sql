-- Statements after those of Apache Superset (4 to 5): its PostgreSQL engine and what its charts ask, written anew. Of the
-- catalog it asks SQLAlchemy's inspector, which is tried with psycopg2. Superset itself was not tried.
SELECT datname FROM pg_database WHERE datistemplate = false;
SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname;
EXPLAIN SELECT count(*) FROM things;
SELECT DATE_TRUNC('month', at) AS __timestamp, sum(price) AS "SUM(price)" FROM public.things WHERE at >= TO_TIMESTAMP('1999-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND at < TO_TIMESTAMP('2039-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('month', at) ORDER BY "SUM(price)" DESC LIMIT 10000;
SELECT name AS name, COUNT(*) AS count, COUNT(DISTINCT flag) AS "COUNT_DISTINCT(flag)" FROM public.things WHERE day >= TO_DATE('1999-01-01', 'YYYY-MM-DD') GROUP BY name ORDER BY count DESC LIMIT 1000;
SELECT * FROM (SELECT id, name FROM things) AS virtual_table LIMIT 1001;
SELECT DATE_TRUNC('week', (at::timestamp + interval '1 day')) AS week, AVG(f8) FROM things GROUP BY 1 ORDER BY 1;
SELECT count(*) AS rowcount FROM (SELECT * FROM things WHERE id IN (1, 2, 3) LIMIT 100) AS rowcount_qry;
