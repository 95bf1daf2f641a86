-- Statements over the catalog after those of the PostgreSQL data source of Grafana (11 to 12): the same tables and
-- functions, written anew. Grafana itself was not tried.
SELECT current_setting('server_version_num')::int / 100 AS version;
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';
SELECT schema_name AS "name" FROM information_schema.schemata WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name;
SELECT quote_ident(table_name) AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) = 'staging' ORDER BY 1;
SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') ORDER BY 1;
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('staging.raw'), 1) = 2 THEN quote_ident(table_schema) = (parse_ident('staging.raw'))[1] AND quote_ident(table_name) = (parse_ident('staging.raw'))[2] ELSE quote_ident(table_name) = 'staging.raw' END;
SELECT quote_ident(column_name) AS "column" FROM information_schema.columns WHERE quote_ident(table_name) = 'things' AND data_type IN ('timestamp without time zone', 'timestamp with time zone', 'bigint', 'integer', 'double precision', 'real') ORDER BY 1;
SELECT floor(extract(epoch from moment) / 3600) * 3600 AS "time", avg(f8) AS "value" FROM things WHERE moment BETWEEN '2024-01-01T00:00:00Z' AND '2024-12-31T00:00:00Z' GROUP BY 1 ORDER BY 1;
SELECT moment AS "time", name AS metric, f8 AS value FROM things WHERE moment >= '1999-01-01T00:00:00Z' AND moment <= '2040-01-01T00:00:00Z' ORDER BY 1, 2 LIMIT 100;
SELECT extract(epoch from at) AS "time", price::float FROM things WHERE extract(epoch from moment) >= 900000000 AND extract(epoch from moment) <= 2200000000 ORDER BY at;
