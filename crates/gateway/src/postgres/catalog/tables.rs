//! The tables of the system catalog: their columns as in PostgreSQL 15, and the rows of those that have any here.

use super::facts::{Facts, PG_CATALOG, RelationFacts};
use super::functions::OWNER;
use super::rows::{Bool, Cell, Float, Int, Rows, text};
use crate::postgres::settings::Settings;
use arrow_array::RecordBatch;
use farpool_model::{Error, Result};
use farpool_postgres::types::{PostgresType, array_of, oid};

/// The object id of the owner of everything, that of the first user of a PostgreSQL.
const OWNER_OID: i64 = 10;
/// The object ids of the database, of its tablespace, and of the access method of tables.
const DATABASE_OID: i64 = 5;
const TABLESPACE_OID: i64 = 1663;
const HEAP_OID: i64 = 2;
/// The object id of the default collation, and of the collation by bytes.
const DEFAULT_COLLATION: i64 = 100;
const C_COLLATION: i64 = 950;

/// The tables with their columns, as [`Rows::new`] takes them. `tableoid` is a column that PostgreSQL does not show in `*`.
const TABLES: &[(&str, &str)] = &[
    ("pg_am", "oid:o amname:t amhandler:t amtype:t"),
    ("pg_attrdef", "oid:o adrelid:o adnum:2 adbin:t"),
    (
        "pg_attribute",
        "attrelid:o attname:t atttypid:o attstattarget:4 attlen:2 attnum:2 attndims:4 attcacheoff:4 atttypmod:4 \
         attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t \
         attgenerated:t attisdropped:b attislocal:b attinhcount:4 attcollation:o attacl:a attoptions:a attfdwoptions:a \
         attmissingval:t",
    ),
    ("pg_auth_members", "roleid:o member:o grantor:o admin_option:b"),
    (
        "pg_authid",
        "oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b \
         rolbypassrls:b rolconnlimit:4 rolpassword:t rolvaliduntil:t",
    ),
    ("pg_available_extensions", "name:t default_version:t installed_version:t comment:t"),
    ("pg_cast", "oid:o castsource:o casttarget:o castfunc:o castcontext:t castmethod:t"),
    (
        "pg_class",
        "oid:o relname:t relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o \
         relpages:4 reltuples:f relallvisible:4 reltoastrelid:o relhasindex:b relisshared:b relpersistence:t relkind:t \
         relnatts:2 relchecks:2 relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b \
         relispopulated:b relreplident:t relispartition:b relrewrite:o relfrozenxid:8 relminmxid:8 relacl:a \
         reloptions:a relpartbound:t tableoid:o",
    ),
    (
        "pg_collation",
        "oid:o collname:t collnamespace:o collowner:o collprovider:t collisdeterministic:b collencoding:4 collcollate:t \
         collctype:t colliculocale:t collversion:t",
    ),
    (
        "pg_constraint",
        "oid:o conname:t connamespace:o contype:t condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o \
         conindid:o conparentid:o confrelid:o confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:4 \
         connoinherit:b conkey:i confkey:i conpfeqop:i conppeqop:i conffeqop:i confdelsetcols:i conexclop:i conbin:t tableoid:o",
    ),
    (
        "pg_conversion",
        "oid:o conname:t connamespace:o conowner:o conforencoding:4 contoencoding:4 conproc:o condefault:b \
         tableoid:o",
    ),
    (
        "pg_database",
        "oid:o datname:t datdba:o encoding:4 datlocprovider:t datistemplate:b datallowconn:b datconnlimit:4 \
         datfrozenxid:8 datminmxid:8 dattablespace:o datcollate:t datctype:t daticulocale:t datcollversion:t datacl:a",
    ),
    ("pg_db_role_setting", "setdatabase:o setrole:o setconfig:a"),
    ("pg_default_acl", "oid:o defaclrole:o defaclnamespace:o defaclobjtype:t defaclacl:a"),
    ("pg_depend", "classid:o objid:o objsubid:4 refclassid:o refobjid:o refobjsubid:4 deptype:t"),
    ("pg_description", "objoid:o classoid:o objsubid:4 description:t"),
    ("pg_enum", "oid:o enumtypid:o enumsortorder:f enumlabel:t"),
    ("pg_event_trigger", "oid:o evtname:t evtevent:t evtowner:o evtfoid:o evtenabled:t evttags:a"),
    (
        "pg_extension",
        "oid:o extname:t extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:i extcondition:a",
    ),
    (
        "pg_foreign_data_wrapper",
        "oid:o fdwname:t fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:a fdwoptions:a",
    ),
    ("pg_foreign_server", "oid:o srvname:t srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:a srvoptions:a"),
    ("pg_foreign_table", "ftrelid:o ftserver:o ftoptions:a"),
    (
        "pg_index",
        "indexrelid:o indrelid:o indnatts:2 indnkeyatts:2 indisunique:b indnullsnotdistinct:b indisprimary:b \
         indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b \
         indisreplident:b indkey:i indcollation:i indclass:i indoption:i indexprs:t indpred:t",
    ),
    ("pg_indexes", "schemaname:t tablename:t indexname:t tablespace:t indexdef:t"),
    ("pg_inherits", "inhrelid:o inhparent:o inhseqno:4 inhdetachpending:b"),
    (
        "pg_language",
        "oid:o lanname:t lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o lanacl:a tableoid:o",
    ),
    (
        "pg_matviews",
        "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    ),
    ("pg_namespace", "oid:o nspname:t nspowner:o nspacl:a tableoid:o"),
    (
        "pg_opclass",
        "oid:o opcmethod:o opcname:t opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o tableoid:o",
    ),
    (
        "pg_operator",
        "oid:o oprname:t oprnamespace:o oprowner:o oprkind:t oprcanmerge:b oprcanhash:b oprleft:o oprright:o \
         oprresult:o oprcom:o oprnegate:o oprcode:o oprrest:o oprjoin:o",
    ),
    ("pg_opfamily", "oid:o opfmethod:o opfname:t opfnamespace:o opfowner:o tableoid:o"),
    (
        "pg_partitioned_table",
        "partrelid:o partstrat:t partnatts:2 partdefid:o partattrs:i partclass:i partcollation:i partexprs:t",
    ),
    ("pg_policies", "schemaname:t tablename:t policyname:t permissive:t roles:a cmd:t qual:t with_check:t"),
    ("pg_policy", "oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:i polqual:t polwithcheck:t"),
    (
        "pg_proc",
        "oid:o proname:t pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o prosupport:t prokind:t \
         prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:2 pronargdefaults:2 \
         prorettype:o proargtypes:i proallargtypes:i proargmodes:a proargnames:a proargdefaults:t protrftypes:i prosrc:t \
         probin:t prosqlbody:t proconfig:a proacl:a tableoid:o",
    ),
    (
        "pg_publication",
        "oid:o pubname:t pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
    ),
    ("pg_publication_namespace", "oid:o pnpubid:o pnnspid:o"),
    ("pg_publication_rel", "oid:o prpubid:o prrelid:o prqual:t prattrs:i"),
    (
        "pg_range",
        "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:t rngsubdiff:t",
    ),
    (
        "pg_rewrite",
        "oid:o rulename:t ev_class:o ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t tableoid:o",
    ),
    (
        "pg_roles",
        "rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:4 \
         rolpassword:t rolvaliduntil:t rolbypassrls:b rolconfig:a oid:o",
    ),
    (
        "pg_sequence",
        "seqrelid:o seqtypid:o seqstart:8 seqincrement:8 seqmax:8 seqmin:8 seqcache:8 seqcycle:b",
    ),
    (
        "pg_settings",
        "name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t vartype:t source:t min_val:t max_val:t \
         enumvals:a boot_val:t reset_val:t sourcefile:t sourceline:4 pending_restart:b",
    ),
    ("pg_shdescription", "objoid:o classoid:o description:t"),
    (
        "pg_stat_activity",
        "datid:o datname:t pid:4 leader_pid:4 usesysid:o usename:t application_name:t client_addr:t \
         client_hostname:t client_port:4 backend_start:t xact_start:t query_start:t state_change:t \
         wait_event_type:t wait_event:t state:t backend_xid:o backend_xmin:o query_id:8 query:t backend_type:t",
    ),
    (
        "pg_stat_all_tables",
        "relid:o schemaname:t relname:t seq_scan:8 seq_tup_read:8 idx_scan:8 idx_tup_fetch:8 n_tup_ins:8 \
         n_tup_upd:8 n_tup_del:8 n_live_tup:8 n_dead_tup:8 last_vacuum:t last_analyze:t",
    ),
    (
        "pg_stat_user_tables",
        "relid:o schemaname:t relname:t seq_scan:8 seq_tup_read:8 idx_scan:8 idx_tup_fetch:8 n_tup_ins:8 \
         n_tup_upd:8 n_tup_del:8 n_live_tup:8 n_dead_tup:8 last_vacuum:t last_analyze:t",
    ),
    (
        "pg_statistic_ext",
        "oid:o stxrelid:o stxname:t stxnamespace:o stxowner:o stxstattarget:4 stxkeys:i stxkind:a stxexprs:t",
    ),
    (
        "pg_tables",
        "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
    ),
    ("pg_tablespace", "oid:o spcname:t spcowner:o spcacl:a spcoptions:a"),
    (
        "pg_trigger",
        "oid:o tgrelid:o tgparentid:o tgname:t tgfoid:o tgtype:2 tgenabled:t tgisinternal:b tgconstrrelid:o \
         tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:2 tgattr:i tgargs:t tgqual:t \
         tgoldtable:t tgnewtable:t tableoid:o",
    ),
    ("pg_ts_config", "oid:o cfgname:t cfgnamespace:o cfgowner:o cfgparser:o tableoid:o"),
    (
        "pg_type",
        "oid:o typname:t typnamespace:o typowner:o typlen:2 typbyval:b typtype:t typcategory:t typispreferred:b \
         typisdefined:b typdelim:t typrelid:o typsubscript:t typelem:o typarray:o typinput:t typoutput:t typreceive:t \
         typsend:t typmodin:t typmodout:t typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:o typtypmod:4 \
         typndims:4 typcollation:o typdefaultbin:t typdefault:t typacl:a tableoid:o",
    ),
    (
        "pg_user",
        "usename:t usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:t useconfig:a",
    ),
    ("pg_user_mappings", "umid:o srvid:o srvname:t umuser:o usename:t umoptions:a"),
    ("pg_views", "schemaname:t viewname:t viewowner:t definition:t"),
];

/// The types that columns can have: object id, name, bytes (negative if they vary), and category
/// (`pg_type.dat` of PostgreSQL).
const TYPES: &[(u32, &str, i16, &str)] = &[
    (oid::BOOL, "bool", 1, "B"),
    (oid::BYTEA, "bytea", -1, "U"),
    (oid::CHAR, "char", 1, "Z"),
    (oid::NAME, "name", 64, "S"),
    (oid::INT8, "int8", 8, "N"),
    (oid::INT2, "int2", 2, "N"),
    (oid::INT4, "int4", 4, "N"),
    (oid::REGPROC, "regproc", 4, "N"),
    (oid::TEXT, "text", -1, "S"),
    (oid::OID, "oid", 4, "N"),
    (oid::JSON, "json", -1, "U"),
    (oid::FLOAT4, "float4", 4, "N"),
    (oid::FLOAT8, "float8", 8, "N"),
    (oid::UNKNOWN, "unknown", -2, "X"),
    (oid::BPCHAR, "bpchar", -1, "S"),
    (oid::VARCHAR, "varchar", -1, "S"),
    (oid::DATE, "date", 4, "D"),
    (oid::TIME, "time", 8, "D"),
    (oid::TIMESTAMP, "timestamp", 8, "D"),
    (oid::TIMESTAMPTZ, "timestamptz", 8, "D"),
    (oid::INTERVAL, "interval", 16, "T"),
    (oid::NUMERIC, "numeric", -1, "N"),
    (oid::UUID, "uuid", 16, "U"),
    (oid::JSONB, "jsonb", -1, "U"),
];

/// Names of types in SQL that are not those of the catalog.
const SQL_NAMES: &[(&str, u32)] = &[
    ("boolean", oid::BOOL),
    ("smallint", oid::INT2),
    ("integer", oid::INT4),
    ("int", oid::INT4),
    ("bigint", oid::INT8),
    ("real", oid::FLOAT4),
    ("double precision", oid::FLOAT8),
    ("decimal", oid::NUMERIC),
    ("character varying", oid::VARCHAR),
    ("timestamp without time zone", oid::TIMESTAMP),
    ("timestamp with time zone", oid::TIMESTAMPTZ),
    ("time without time zone", oid::TIME),
];

/// Returns the names of all tables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// Returns the name of a type in the catalog.
pub(super) fn type_called(type_oid: i64) -> Option<&'static str> {
    TYPES.iter().find(|(known, ..)| i64::from(*known) == type_oid).map(|(_, name, ..)| *name)
}

/// Returns the object id of a type by its name.
pub(super) fn type_named(written: &str) -> Option<i64> {
    let name = written.trim().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name).trim_matches('"');
    let by_name = TYPES.iter().find(|(_, known, ..)| *known == name).map(|(known, ..)| *known);
    by_name
        .or_else(|| SQL_NAMES.iter().find(|(known, _)| *known == name).map(|(_, known)| *known))
        .map(i64::from)
}

/// Computes the rows of a table.
///
/// # Errors
/// `Internal` for a table that is not in the list.
pub(super) fn rows(facts: &Facts, table: &str) -> Result<RecordBatch> {
    let columns = TABLES.iter().find(|(name, _)| *name == table).map(|(_, columns)| *columns);
    let columns =
        columns.ok_or_else(|| Error::internal(format!("there is no table {table} of the catalog")))?;
    let mut rows = Rows::new(columns);
    match table {
        "pg_am" => rows.add(&[("oid", Int(HEAP_OID)), ("amname", text("heap")), ("amtype", text("t"))]),
        "pg_namespace" => facts.schemas.iter().for_each(|(oid, name)| {
            rows.add(&[("oid", Int(*oid)), ("nspname", text(name)), ("nspowner", Int(OWNER_OID))]);
        }),
        "pg_class" => facts.relations.iter().for_each(|(oid, relation)| class(&mut rows, *oid, relation)),
        "pg_attribute" => {
            facts.relations.iter().for_each(|(oid, relation)| attributes(&mut rows, *oid, relation))
        }
        "pg_type" => TYPES.iter().for_each(|known| data_type(&mut rows, known)),
        "pg_collation" => {
            for (oid, name, provider) in [(DEFAULT_COLLATION, "default", "d"), (C_COLLATION, "C", "c")] {
                rows.add(&[
                    ("oid", Int(oid)),
                    ("collname", text(name)),
                    ("collnamespace", Int(PG_CATALOG)),
                    ("collowner", Int(OWNER_OID)),
                    ("collprovider", text(provider)),
                    ("collisdeterministic", Bool(true)),
                    ("collencoding", Int(-1)),
                    ("collcollate", text("C")),
                    ("collctype", text("C")),
                ]);
            }
        }
        "pg_database" => rows.add(&[
            ("oid", Int(DATABASE_OID)),
            ("datname", text(&facts.database)),
            ("datdba", Int(OWNER_OID)),
            ("encoding", Int(6)),
            ("datlocprovider", text("c")),
            ("datistemplate", Bool(false)),
            ("datallowconn", Bool(true)),
            ("datconnlimit", Int(-1)),
            ("datfrozenxid", Int(0)),
            ("datminmxid", Int(0)),
            ("dattablespace", Int(TABLESPACE_OID)),
            ("datcollate", text("C")),
            ("datctype", text("C")),
        ]),
        "pg_tablespace" => rows.add(&[
            ("oid", Int(TABLESPACE_OID)),
            ("spcname", text("pg_default")),
            ("spcowner", Int(OWNER_OID)),
        ]),
        "pg_language" => rows.add(&[
            ("oid", Int(14)),
            ("lanname", text("sql")),
            ("lanowner", Int(OWNER_OID)),
            ("lanispl", Bool(false)),
            ("lanpltrusted", Bool(true)),
        ]),
        "pg_roles" | "pg_authid" => rows.add(&[
            ("oid", Int(OWNER_OID)),
            ("rolname", text(OWNER)),
            ("rolsuper", Bool(false)),
            ("rolinherit", Bool(true)),
            ("rolcreaterole", Bool(false)),
            ("rolcreatedb", Bool(false)),
            ("rolcanlogin", Bool(true)),
            ("rolreplication", Bool(false)),
            ("rolbypassrls", Bool(false)),
            ("rolconnlimit", Int(-1)),
        ]),
        "pg_user" => rows.add(&[
            ("usename", text(OWNER)),
            ("usesysid", Int(OWNER_OID)),
            ("usecreatedb", Bool(false)),
            ("usesuper", Bool(false)),
            ("userepl", Bool(false)),
            ("usebypassrls", Bool(false)),
        ]),
        "pg_settings" => {
            for (name, value) in Settings::default().all() {
                rows.add(&[
                    ("name", text(name)),
                    ("setting", text(value)),
                    ("context", text("user")),
                    ("vartype", text("string")),
                    ("source", text("default")),
                    ("boot_val", text(value)),
                    ("reset_val", text(value)),
                    ("pending_restart", Bool(false)),
                ]);
            }
        }
        "pg_tables" => {
            for relation in facts.relations.values().filter(|relation| !relation.is_view()) {
                rows.add(&[
                    ("schemaname", schema_of(facts, relation)),
                    ("tablename", text(&relation.name)),
                    ("tableowner", text(OWNER)),
                    ("hasindexes", Bool(false)),
                    ("hasrules", Bool(false)),
                    ("hastriggers", Bool(false)),
                    ("rowsecurity", Bool(false)),
                ]);
            }
        }
        "pg_views" => {
            for relation in facts.relations.values() {
                let Some(definition) = &relation.text else { continue };
                rows.add(&[
                    ("schemaname", schema_of(facts, relation)),
                    ("viewname", text(&relation.name)),
                    ("viewowner", text(OWNER)),
                    ("definition", text(definition)),
                ]);
            }
        }
        "pg_stat_all_tables" | "pg_stat_user_tables" => {
            for (oid, relation) in facts.relations.iter().filter(|(_, relation)| !relation.is_view()) {
                let live = relation.rows.and_then(|rows| i64::try_from(rows).ok()).unwrap_or(0);
                rows.add(&[
                    ("relid", Int(*oid)),
                    ("schemaname", schema_of(facts, relation)),
                    ("relname", text(&relation.name)),
                    ("n_live_tup", Int(live)),
                    ("n_dead_tup", Int(0)),
                ]);
            }
        }
        // There is nothing of these kinds.
        _ => {}
    }
    rows.batch()
}

fn schema_of(facts: &Facts, relation: &RelationFacts) -> Cell {
    text(facts.schema_of(relation))
}

fn class(rows: &mut Rows, oid: i64, relation: &RelationFacts) {
    let pages = i64::try_from(relation.bytes.div_ceil(8192)).unwrap_or(i64::MAX).min(i32::MAX.into());
    let columns = i64::try_from(relation.columns.len()).unwrap_or(0);
    rows.add(&[
        ("oid", Int(oid)),
        ("relname", text(&relation.name)),
        ("relnamespace", Int(relation.schema)),
        ("reltype", Int(0)),
        ("reloftype", Int(0)),
        ("relowner", Int(OWNER_OID)),
        ("relam", Int(if relation.is_view() { 0 } else { HEAP_OID })),
        ("relfilenode", Int(0)),
        ("reltablespace", Int(0)),
        ("relpages", Int(pages)),
        ("reltuples", relation.rows.map_or(Float(-1.0), |rows| Float(rows as f32))),
        ("relallvisible", Int(0)),
        ("reltoastrelid", Int(0)),
        ("relhasindex", Bool(false)),
        ("relisshared", Bool(false)),
        ("relpersistence", text("p")),
        ("relkind", text(if relation.is_view() { "v" } else { "r" })),
        ("relnatts", Int(columns)),
        ("relchecks", Int(0)),
        ("relhasrules", Bool(relation.is_view())),
        ("relhastriggers", Bool(false)),
        ("relhassubclass", Bool(false)),
        ("relrowsecurity", Bool(false)),
        ("relforcerowsecurity", Bool(false)),
        ("relispopulated", Bool(true)),
        ("relreplident", text("d")),
        ("relispartition", Bool(false)),
        ("relrewrite", Int(0)),
        ("relfrozenxid", Int(0)),
        ("relminmxid", Int(0)),
    ]);
}

fn attributes(rows: &mut Rows, oid: i64, relation: &RelationFacts) {
    for (number, field) in (1..).zip(&relation.columns) {
        let PostgresType { oid: type_oid, size, modifier } = PostgresType::of(field.data_type());
        rows.add(&[
            ("attrelid", Int(oid)),
            ("attname", text(field.name())),
            ("atttypid", Int(type_oid.into())),
            ("attstattarget", Int(-1)),
            ("attlen", Int(size.into())),
            ("attnum", Int(number)),
            ("attndims", Int(0)),
            ("attcacheoff", Int(-1)),
            ("atttypmod", Int(modifier.into())),
            ("attbyval", Bool((1..=8).contains(&size))),
            ("attalign", text("i")),
            ("attstorage", text("p")),
            ("attcompression", text("")),
            ("attnotnull", Bool(!field.is_nullable())),
            ("atthasdef", Bool(false)),
            ("atthasmissing", Bool(false)),
            ("attidentity", text("")),
            ("attgenerated", text("")),
            ("attisdropped", Bool(false)),
            ("attislocal", Bool(true)),
            ("attinhcount", Int(0)),
            // Texts are compared by their bytes, as another PostgreSQL must know that imports the table.
            ("attcollation", Int(if type_oid == oid::TEXT { C_COLLATION } else { 0 })),
        ]);
    }
}

fn data_type(rows: &mut Rows, (type_oid, name, size, category): &(u32, &str, i16, &str)) {
    let array = array_of(*type_oid);
    let mut add = |oid: u32, name: &str, size: i16, category: &str, element: u32, array: u32| {
        let is_text = category == "S";
        rows.add(&[
            ("oid", Int(oid.into())),
            ("typname", text(name)),
            ("typnamespace", Int(PG_CATALOG)),
            ("typowner", Int(OWNER_OID)),
            ("typlen", Int(size.into())),
            ("typbyval", Bool((1..=8).contains(&size))),
            ("typtype", text(if category == "X" { "p" } else { "b" })),
            ("typcategory", text(category)),
            (
                "typispreferred",
                Bool(["bool", "float8", "text", "oid", "timestamptz", "interval"].contains(&name)),
            ),
            ("typisdefined", Bool(true)),
            ("typdelim", text(",")),
            ("typrelid", Int(0)),
            ("typsubscript", text(if element == 0 { "-" } else { "array_subscript_handler" })),
            ("typelem", Int(element.into())),
            ("typarray", Int(array.into())),
            ("typinput", text(&if element == 0 { format!("{name}in") } else { "array_in".to_string() })),
            ("typoutput", text(&if element == 0 { format!("{name}out") } else { "array_out".to_string() })),
            (
                "typreceive",
                text(&if element == 0 { format!("{name}recv") } else { "array_recv".to_string() }),
            ),
            ("typsend", text(&if element == 0 { format!("{name}send") } else { "array_send".to_string() })),
            ("typmodin", text("-")),
            ("typmodout", text("-")),
            ("typanalyze", text("-")),
            ("typalign", text("i")),
            ("typstorage", text(if size < 0 { "x" } else { "p" })),
            ("typnotnull", Bool(false)),
            ("typbasetype", Int(0)),
            ("typtypmod", Int(-1)),
            ("typndims", Int(0)),
            ("typcollation", Int(if is_text { C_COLLATION } else { 0 })),
        ]);
    };
    add(*type_oid, name, *size, category, 0, array.unwrap_or(0));
    if let Some(array) = array {
        add(array, &format!("_{name}"), -1, "A", *type_oid, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::PUBLIC;
    use super::*;
    use arrow_schema::{DataType, Field};
    use std::sync::Arc;

    #[test]
    fn every_table_has_rows_that_fit_its_columns() {
        let mut facts = Facts::default();
        facts.schemas.insert(PUBLIC, "public".into());
        let columns = vec![
            Arc::new(Field::new("k", DataType::Int64, false)),
            Arc::new(Field::new("d", DataType::Decimal128(15, 2), true)),
        ];
        let relation = |name: &str, text: Option<&str>, columns| RelationFacts {
            name: name.into(),
            schema: PUBLIC,
            rows: Some(7),
            bytes: 10_000,
            columns,
            text: text.map(str::to_string),
        };
        facts.relations.insert(20_000, relation("t", None, columns));
        facts.relations.insert(20_001, relation("v", Some("select 1"), vec![]));
        for name in names() {
            let batch = rows(&facts, name).unwrap();
            assert!(batch.num_columns() > 1, "{name}");
        }
        assert_eq!(rows(&facts, "pg_class").unwrap().num_rows(), 2);
        assert_eq!(rows(&facts, "pg_attribute").unwrap().num_rows(), 2);
        assert_eq!(rows(&facts, "pg_tables").unwrap().num_rows(), 1);
        assert_eq!(rows(&facts, "pg_views").unwrap().num_rows(), 1);
        assert_eq!(rows(&facts, "pg_index").unwrap().num_rows(), 0);
        assert!(rows(&facts, "pg_nothing").is_err());
    }

    #[test]
    fn types_are_found_by_both_of_their_names() {
        assert_eq!(type_named("integer"), Some(23));
        assert_eq!(type_named("pg_catalog.int4"), Some(23));
        assert_eq!(type_named("circle"), None);
        assert_eq!(type_called(1700), Some("numeric"));
        assert!(names().is_sorted());
    }
}
