//! The tables, views and schemas of a pool with their object ids.

use arrow_schema::Field;
use farpool_datafusion::{Session, Statement};
use farpool_model::{Relation, Result, TableName, quoted};
use farpool_transfer::Pool;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The schema of PostgreSQL's own objects, and the schema `public`, with the object ids that they have there.
pub(super) const PG_CATALOG: i64 = 11;
pub(super) const PUBLIC: i64 = 2200;

/// The least object id of objects that PostgreSQL does not have itself (`FirstNormalObjectId`).
const FIRST_OID: i64 = 16_384;

/// Facts about the tables of a pool.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The name of the database.
    pub database: String,
    /// The schemas by their object ids.
    pub schemas: BTreeMap<i64, String>,
    /// The tables and views by their object ids.
    pub relations: BTreeMap<i64, RelationFacts>,
}

/// A table or a view.
#[derive(Debug)]
pub(super) struct RelationFacts {
    pub name: String,
    /// The object id of the schema.
    pub schema: i64,
    /// The number of rows; `None` for a view.
    pub rows: Option<u64>,
    /// The encoded bytes.
    pub bytes: u64,
    /// The columns; none for a view that cannot be planned.
    pub columns: Vec<Arc<Field>>,
    /// The text of a view.
    pub text: Option<String>,
}

impl RelationFacts {
    /// Returns whether it is a view.
    pub fn is_view(&self) -> bool {
        self.text.is_some()
    }
}

impl Facts {
    /// Asks a pool, which is `database`; `planner` plans its views.
    pub async fn of(pool: &dyn Pool, database: String, planner: Option<&Session>) -> Result<Self> {
        let listing = pool.list(None).await?;
        let mut facts = Facts { database, ..Facts::default() };
        facts.schemas.insert(PG_CATALOG, "pg_catalog".into());
        facts.schemas.insert(PUBLIC, "public".into());
        for schema in ["information_schema"].into_iter().chain(listing.schemas.iter().map(|s| s.as_str())) {
            let oid = free(&facts.schemas, schema);
            facts.schemas.insert(oid, schema.to_string());
        }
        for table in listing.tables {
            let columns = table.schema.fields().iter().cloned().collect();
            let (rows, bytes) = (Some(table.rows), table.bytes_encoded);
            facts.add(&table.name, |name, schema| RelationFacts {
                name,
                schema,
                rows,
                bytes,
                columns,
                text: None,
            });
        }
        for name in listing.views {
            // A view that was dropped meanwhile is left out.
            let Ok(Relation::View(view)) = pool.relation(&name).await else { continue };
            let columns = match planner {
                Some(planner) => columns_of(planner, &name).await,
                None => Vec::new(),
            };
            let text = Some(view.text().to_string());
            facts.add(&name, |name, schema| RelationFacts {
                name,
                schema,
                rows: None,
                bytes: 0,
                columns,
                text,
            });
        }
        Ok(facts)
    }

    fn add(&mut self, name: &TableName, made: impl FnOnce(String, i64) -> RelationFacts) {
        let schema = self.schema(name.schema().as_str()).unwrap_or(PUBLIC);
        let oid = free(&self.relations, name.as_str());
        self.relations.insert(oid, made(name.table().to_string(), schema));
    }

    /// Returns the object id of a schema.
    pub fn schema(&self, name: &str) -> Option<i64> {
        self.schemas.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid)
    }

    /// Returns the name of the schema of a table or view.
    pub fn schema_of(&self, relation: &RelationFacts) -> &str {
        self.schemas.get(&relation.schema).map_or("public", String::as_str)
    }

    /// Returns the object id of a table or view, of which the name may be qualified and in quotes.
    pub fn relation(&self, written: &str) -> Option<i64> {
        let parts = parts_of(written)?;
        let (schema, name) = match parts.as_slice() {
            [name] => (PUBLIC, name),
            [schema, name] => (self.schema(schema)?, name),
            _ => return None,
        };
        self.relations
            .iter()
            .find(|(_, known)| known.schema == schema && known.name == *name)
            .map(|(oid, _)| *oid)
    }

    /// Returns the name of a table or view as it is written in a statement.
    pub fn relation_name(&self, oid: i64) -> Option<String> {
        let relation = self.relations.get(&oid)?;
        let name = quoted(&relation.name);
        match relation.schema {
            PUBLIC | PG_CATALOG => Some(name),
            schema => Some(format!("{}.{name}", quoted(self.schemas.get(&schema)?))),
        }
    }
}

async fn columns_of(planner: &Session, name: &TableName) -> Vec<Arc<Field>> {
    let text = format!("SELECT * FROM {}.{}", quoted(name.schema().as_str()), quoted(name.table()));
    let statement = Statement::from(text.as_str());
    match planner.describe(&statement, &[]).await {
        Ok(described) => described.schema.fields().iter().cloned().collect(),
        Err(_) => Vec::new(),
    }
}

/// Returns the object id for a name: its hash (FNV-1a), or the next one that is free.
fn free<T>(taken: &BTreeMap<i64, T>, name: &str) -> i64 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let range = i64::from(i32::MAX) - FIRST_OID;
    let mut oid = FIRST_OID + i64::from(hash) % range;
    while taken.contains_key(&oid) {
        oid = FIRST_OID + (oid - FIRST_OID + 1) % range;
    }
    oid
}

/// Returns the parts of a qualified name: in lower case without quotes, as they are within.
pub(super) fn parts_of(written: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), written.trim());
    loop {
        let (part, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut name = String::new();
                let mut chars = quoted.char_indices().peekable();
                let end = loop {
                    match chars.next()? {
                        (_, '"') if chars.next_if(|(_, c)| *c == '"').is_some() => name.push('"'),
                        (at, '"') => break at,
                        (_, c) => name.push(c),
                    }
                };
                (name, &quoted[end + 1..])
            }
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].to_lowercase(), &rest[end..])
            }
        };
        parts.push(part);
        match behind.strip_prefix('.') {
            Some(behind) => rest = behind,
            None if behind.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_in_statements() {
        let parts = |written| parts_of(written).map(|parts| parts.join("|"));
        assert_eq!(parts("Orders").as_deref(), Some("orders"));
        assert_eq!(parts("\"A \"\"b\"\"\".c").as_deref(), Some("A \"b\"|c"));
        assert_eq!(parts("public.\"X\"").as_deref(), Some("public|X"));
        assert_eq!((parts("\"open"), parts("\"a\"b")), (None, None));
    }

    #[test]
    fn object_ids_follow_from_names_and_are_not_taken_twice() {
        let mut taken = BTreeMap::new();
        let first = free(&taken, "lineitem");
        assert_eq!(first, free(&taken, "lineitem"));
        taken.insert(first, ());
        assert_eq!(free(&taken, "lineitem"), first + 1);
        assert!((FIRST_OID..i64::from(i32::MAX)).contains(&first));
    }
}
