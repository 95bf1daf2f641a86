-- Statements over the catalog after those that DBeaver (24 to 25, its PostgreSQL extension) reads a database with: the
-- same tables, columns, joins and functions, written anew. DBeaver itself was not tried.
-- psql sets :things, the oid of a table, and :public, that of a schema.
SELECT version();
SELECT current_schema(), session_user;
SELECT current_database();
SHOW search_path;
SELECT x.oid, x.* FROM pg_catalog.pg_database x WHERE x.datallowconn AND NOT x.datistemplate OR x.datname = 'farpool' ORDER BY x.datname;
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY n.nspname;
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');
SELECT e.enumtypid, e.enumlabel FROM pg_catalog.pg_enum e ORDER BY e.enumtypid, e.enumsortorder;
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass WHERE c.relnamespace = :public AND c.relkind NOT IN ('i', 'I', 'c');
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = :things ORDER BY a.attnum;
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) ELSE NULL END AS consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass WHERE c.conrelid = :things ORDER BY c.oid;
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description, pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr, pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid WHERE i.indrelid = :things ORDER BY tabrelname, c.relname;
SELECT i.inhparent AS parent, i.inhseqno FROM pg_catalog.pg_inherits i WHERE i.inhrelid = :things ORDER BY i.inhseqno;
SELECT p.* FROM pg_catalog.pg_policies p WHERE p.schemaname = 'public' AND p.tablename = 'things';
SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description FROM pg_catalog.pg_trigger x LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid AND d.objsubid = 0 WHERE x.tgrelid = :things AND NOT x.tgisinternal;
SELECT p.oid, p.*, CASE WHEN p.prokind = 'a' THEN NULL ELSE pg_catalog.pg_get_expr(p.proargdefaults, 0) END AS arg_defaults, d.description FROM pg_catalog.pg_proc p LEFT OUTER JOIN pg_catalog.pg_language l ON l.oid = p.prolang LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid WHERE p.pronamespace = :public ORDER BY p.proname;
SELECT a.oid, a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname;
SELECT t.oid, t.*, pg_tablespace_location(t.oid) AS loc FROM pg_catalog.pg_tablespace t ORDER BY t.oid;
SELECT a.oid, a.* FROM pg_catalog.pg_am a ORDER BY a.oid;
SELECT l.oid, l.* FROM pg_catalog.pg_language l ORDER BY l.oid;
SELECT c.oid, c.* FROM pg_catalog.pg_collation c ORDER BY c.oid;
SELECT s.oid, s.* FROM pg_catalog.pg_foreign_server s ORDER BY s.oid;
SELECT e.oid, e.*, n.nspname AS schema_name FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace ORDER BY e.oid;
SELECT name, default_version, comment FROM pg_catalog.pg_available_extensions ORDER BY name;
SELECT s.name, s.setting, s.unit, s.category, s.short_desc FROM pg_catalog.pg_settings s;
SELECT pg_catalog.pg_database_size('farpool');
SELECT c.oid, pg_catalog.pg_total_relation_size(c.oid) AS total_rel_size, pg_catalog.pg_relation_size(c.oid) AS rel_size FROM pg_catalog.pg_class c WHERE c.relnamespace = :public;
SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = :things;
SELECT pg_catalog.pg_get_viewdef((SELECT oid FROM pg_catalog.pg_class WHERE relname = 'minutes'), true);
SELECT x.oid, x.relname, x.relkind FROM pg_catalog.pg_class x WHERE x.relkind IN ('r', 'v', 'm', 'f', 'p') AND x.relname ILIKE '%thing%' ORDER BY x.relname LIMIT 100;
SELECT r.refobjid, r.objid FROM pg_catalog.pg_depend r WHERE r.refobjid = :things AND r.deptype = 'n';
SELECT pid, usename, application_name, state, query FROM pg_catalog.pg_stat_activity;
SELECT m.roleid, m.member, m.admin_option FROM pg_catalog.pg_auth_members m;
