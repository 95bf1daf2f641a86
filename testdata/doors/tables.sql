-- Tables of every type that both PostgreSQL and a pool have, with rows whose answers everybody can check.
CREATE TABLE things (
    id integer NOT NULL, flag boolean, small smallint, big bigint, f4 real, f8 double precision,
    price numeric(12, 2), name text, bytes bytea, day date, at timestamp, moment timestamptz
);
COPY things FROM STDIN;
1	t	7	70000000000	1.5	2.25	12.50	pen	\\x0001ff	2024-02-29	2024-02-29 12:34:56.789	2024-02-29 12:34:56+00
2	f	-7	-1	0.1	-0.1	-3.99	O'Brien, "x"	\\x	1999-12-31	1999-12-31 23:59:59.999999	1999-12-31 23:59:59+00
3	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N
5	t	0	0	0	0	0	ärmel	\\x	2000-01-01	2000-01-01 00:00:00	2000-01-01 00:00:00+00
4	t	0	9223372036854775807	3.4e38	1.7e308	9999999999.99	Grüße, 世界	\\x5c	2038-01-19	2038-01-19 03:14:07	2038-01-19 03:14:07+00
\.
CREATE TABLE visits (thing integer, who text, minutes integer);
INSERT INTO visits VALUES (1, 'ann', 10), (1, 'bob', 20), (2, 'ann', 30), (4, 'eve', NULL), (9, 'bob', 5);
CREATE TABLE "Odd Names" ("Id" integer, "select" text, "Größe" double precision);
INSERT INTO "Odd Names" VALUES (1, 'a', 0.5::float8);
CREATE TABLE notes (line bigint, content text);
CREATE VIEW minutes AS SELECT who, sum(minutes) AS total FROM visits GROUP BY who;
CREATE SCHEMA staging;
CREATE TABLE staging.raw (line bigint, content text);
INSERT INTO staging.raw VALUES (1, 'x');
