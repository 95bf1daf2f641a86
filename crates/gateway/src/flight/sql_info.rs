//! Facts about the server and its dialect, and its types, as drivers ask for them.

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedGroupBy, SqlSupportedResultSetConcurrency, SqlSupportedResultSetType, SqlSupportedSubqueries,
    SqlSupportedTransaction, SqlSupportedUnions, SqlTransactionIsolationLevel, SupportedSqlGrammar,
    XdbcDataType, XdbcDatetimeSubcode,
};
use farpool_model::limits;

/// The version of Arrow's columnar format.
const ARROW_VERSION: &str = "1.5";

/// Keywords that are not in SQL-92.
const KEYWORDS: &[&str] =
    &["EXCLUDE", "ILIKE", "LIMIT", "OFFSET", "QUALIFY", "REPLACE", "SUMMARIZE", "UNNEST"];

/// Returns the bits of a set of enumerated facts.
fn bits<T: Into<i32>>(facts: impl IntoIterator<Item = T>) -> i32 {
    facts.into_iter().fold(0, |bits, fact| bits | 1 << fact.into())
}

/// Returns a limit as the protocol has it.
fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// Returns the facts about the server.
pub(super) fn server_facts() -> Result<SqlInfoData> {
    let mut facts = SqlInfoDataBuilder::new();
    facts.append(SqlInfo::FlightSqlServerName, "farpool");
    facts.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    facts.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    for (fact, holds) in [
        (SqlInfo::SqlMaxRowSizeIncludesBlobs, true),
        (SqlInfo::FlightSqlServerReadOnly, false),
        (SqlInfo::FlightSqlServerSql, true),
        (SqlInfo::FlightSqlServerSubstrait, false),
        (SqlInfo::FlightSqlServerCancel, true),
        (SqlInfo::FlightSqlServerBulkIngestion, true),
        (SqlInfo::FlightSqlServerIngestTransactionsSupported, false),
        (SqlInfo::SqlDdlCatalog, false),
        (SqlInfo::SqlDdlSchema, true),
        (SqlInfo::SqlDdlTable, true),
        (SqlInfo::SqlAllTablesAreSelectable, true),
        (SqlInfo::SqlSupportsColumnAliasing, true),
        (SqlInfo::SqlNullPlusNullIsNull, true),
        (SqlInfo::SqlSupportsTableCorrelationNames, true),
        (SqlInfo::SqlSupportsDifferentTableCorrelationNames, false),
        (SqlInfo::SqlSupportsExpressionsInOrderBy, true),
        (SqlInfo::SqlSupportsOrderByUnrelated, true),
        (SqlInfo::SqlSupportsLikeEscapeClause, true),
        (SqlInfo::SqlSupportsNonNullableColumns, true),
        (SqlInfo::SqlSupportsIntegrityEnhancementFacility, false),
        (SqlInfo::SqlCatalogAtStart, true),
        (SqlInfo::SqlSelectForUpdateSupported, false),
        (SqlInfo::SqlStoredProceduresSupported, false),
        (SqlInfo::SqlCorrelatedSubqueriesSupported, true),
        (SqlInfo::SqlTransactionsSupported, false),
        (SqlInfo::SqlDataDefinitionCausesTransactionCommit, false),
        (SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false),
        (SqlInfo::SqlBatchUpdatesSupported, true),
        (SqlInfo::SqlSavepointsSupported, false),
        (SqlInfo::SqlNamedParametersSupported, true),
        (SqlInfo::SqlLocatorsUpdateCopy, false),
        (SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false),
    ] {
        facts.append(fact, holds);
    }
    for (fact, text) in [
        (SqlInfo::SqlIdentifierQuoteChar, "\""),
        (SqlInfo::SqlSearchStringEscape, "\\"),
        (SqlInfo::SqlExtraNameCharacters, "$"),
        (SqlInfo::SqlSchemaTerm, "schema"),
        (SqlInfo::SqlCatalogTerm, "catalog"),
        (SqlInfo::SqlProcedureTerm, "procedure"),
    ] {
        facts.append(fact, text);
    }
    facts.append(SqlInfo::SqlKeywords, KEYWORDS);
    let enumerated = [
        (SqlInfo::FlightSqlServerTransaction, i32::from(SqlSupportedTransaction::None)),
        (SqlInfo::SqlIdentifierCase, i32::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase)),
        // Names in quotes are as they are written.
        (SqlInfo::SqlQuotedIdentifierCase, i32::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown)),
        (SqlInfo::SqlNullOrdering, i32::from(SqlNullOrdering::SqlNullsSortedHigh)),
        (
            SqlInfo::SqlSupportedGroupBy,
            bits([SqlSupportedGroupBy::SqlGroupByUnrelated, SqlSupportedGroupBy::SqlGroupByBeyondSelect]),
        ),
        (
            SqlInfo::SqlSupportedGrammar,
            bits([SupportedSqlGrammar::SqlMinimumGrammar, SupportedSqlGrammar::SqlCoreGrammar]),
        ),
        (SqlInfo::SqlAnsi92SupportedLevel, 1),
        (SqlInfo::SqlOuterJoinsSupportLevel, bits([SqlOuterJoinsSupportLevel::SqlFullOuterJoins])),
        (SqlInfo::SqlSchemasSupportedActions, 0),
        (SqlInfo::SqlCatalogsSupportedActions, 0),
        (SqlInfo::SqlSupportedPositionedCommands, 0),
        (
            SqlInfo::SqlSupportedSubqueries,
            bits([
                SqlSupportedSubqueries::SqlSubqueriesInComparisons,
                SqlSupportedSubqueries::SqlSubqueriesInExists,
                SqlSupportedSubqueries::SqlSubqueriesInIns,
            ]),
        ),
        (SqlInfo::SqlSupportedUnions, bits([SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll])),
        (
            SqlInfo::SqlDefaultTransactionIsolation,
            i32::from(SqlTransactionIsolationLevel::SqlTransactionNone),
        ),
        (
            SqlInfo::SqlSupportedTransactionsIsolationLevels,
            bits([SqlTransactionIsolationLevel::SqlTransactionNone]),
        ),
        (SqlInfo::SqlSupportedResultSetTypes, bits([SqlSupportedResultSetType::SqlResultSetTypeForwardOnly])),
        (
            SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly,
            bits([SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly]),
        ),
        // Without a limit of the server's own.
        (SqlInfo::FlightSqlServerStatementTimeout, 0),
        (SqlInfo::FlightSqlServerTransactionTimeout, 0),
    ];
    for (fact, number) in enumerated {
        facts.append(fact, number);
    }
    for (fact, most) in [
        (SqlInfo::SqlMaxColumnNameLength, limits::NAME_BYTES_MAX),
        (SqlInfo::SqlDbSchemaNameLength, limits::NAME_BYTES_MAX),
        (SqlInfo::SqlMaxTableNameLength, limits::NAME_BYTES_MAX),
        (SqlInfo::SqlMaxColumnsInTable, limits::COLUMNS_MAX),
        (SqlInfo::SqlMaxConnections, limits::GATEWAY_CONNECTIONS_MAX),
        (SqlInfo::SqlMaxStatementLength, limits::FLIGHT_MESSAGE_BYTES_MAX),
        (SqlInfo::SqlMaxStatements, limits::FLIGHT_STATEMENTS_MAX),
        // 0 stands for no limit, and for what there is not.
        (SqlInfo::SqlMaxBinaryLiteralLength, 0),
        (SqlInfo::SqlMaxCharLiteralLength, 0),
        (SqlInfo::SqlMaxColumnsInGroupBy, 0),
        (SqlInfo::SqlMaxColumnsInIndex, 0),
        (SqlInfo::SqlMaxColumnsInOrderBy, 0),
        (SqlInfo::SqlMaxColumnsInSelect, 0),
        (SqlInfo::SqlMaxCursorNameLength, 0),
        (SqlInfo::SqlMaxIndexLength, 0),
        (SqlInfo::SqlMaxProcedureNameLength, 0),
        (SqlInfo::SqlMaxCatalogNameLength, 0),
        (SqlInfo::SqlMaxRowSize, 0),
        (SqlInfo::SqlMaxTablesInSelect, 0),
        (SqlInfo::SqlMaxUsernameLength, 0),
    ] {
        facts.append(fact, limit(most));
    }
    facts.build()
}

/// The types of the dialect: the name, the type and its size in digits, characters or bits, and whether it is unsigned;
/// `None` for what has no sign.
const TYPES: &[(&str, XdbcDataType, Option<i32>, Option<bool>)] = &[
    ("BOOLEAN", XdbcDataType::XdbcBit, Some(1), None),
    ("TINYINT", XdbcDataType::XdbcTinyint, Some(3), Some(false)),
    ("UTINYINT", XdbcDataType::XdbcTinyint, Some(3), Some(true)),
    ("SMALLINT", XdbcDataType::XdbcSmallint, Some(5), Some(false)),
    ("USMALLINT", XdbcDataType::XdbcSmallint, Some(5), Some(true)),
    ("INTEGER", XdbcDataType::XdbcInteger, Some(10), Some(false)),
    ("UINTEGER", XdbcDataType::XdbcInteger, Some(10), Some(true)),
    ("BIGINT", XdbcDataType::XdbcBigint, Some(19), Some(false)),
    ("UBIGINT", XdbcDataType::XdbcBigint, Some(20), Some(true)),
    ("DECIMAL", XdbcDataType::XdbcDecimal, Some(38), Some(false)),
    ("FLOAT", XdbcDataType::XdbcReal, Some(7), Some(false)),
    ("DOUBLE", XdbcDataType::XdbcDouble, Some(15), Some(false)),
    ("VARCHAR", XdbcDataType::XdbcVarchar, None, None),
    ("BLOB", XdbcDataType::XdbcVarbinary, None, None),
    ("DATE", XdbcDataType::XdbcDate, Some(10), None),
    ("TIME", XdbcDataType::XdbcTime, Some(15), None),
    ("TIMESTAMP", XdbcDataType::XdbcTimestamp, Some(29), None),
    ("TIMESTAMP WITH TIME ZONE", XdbcDataType::XdbcTimestamp, Some(35), None),
];

/// Returns the types of the dialect.
pub(super) fn types() -> Result<XdbcTypeInfoData> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size, unsigned) in TYPES {
        let is_text = matches!(data_type, XdbcDataType::XdbcVarchar);
        let is_quoted = unsigned.is_none() && !matches!(data_type, XdbcDataType::XdbcBit);
        let prefix = match (data_type, is_quoted) {
            (_, false) => None,
            (XdbcDataType::XdbcVarchar, _) => Some("'".to_string()),
            (XdbcDataType::XdbcVarbinary, _) => Some("X'".to_string()),
            _ => Some(format!("{name} '")),
        };
        let is_decimal = matches!(data_type, XdbcDataType::XdbcDecimal);
        let (sql_data_type, datetime_subcode) = match data_type {
            // The codes of a year and of a date are the same number.
            XdbcDataType::XdbcDate => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeYear))
            }
            XdbcDataType::XdbcTime => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTime))
            }
            XdbcDataType::XdbcTimestamp => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp))
            }
            other => (*other, None),
        };
        types.append(XdbcTypeInfo {
            type_name: (*name).to_string(),
            data_type: *data_type,
            column_size: *size,
            literal_prefix: prefix,
            literal_suffix: is_quoted.then(|| "'".to_string()),
            create_params: is_decimal.then(|| vec!["precision".to_string(), "scale".to_string()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: is_text,
            searchable: if is_text { Searchable::Full } else { Searchable::Basic },
            unsigned_attribute: *unsigned,
            fixed_prec_scale: false,
            auto_increment: unsigned.map(|_| false),
            local_type_name: Some((*name).to_string()),
            minimum_scale: is_decimal.then_some(0),
            maximum_scale: is_decimal.then_some(38),
            sql_data_type,
            datetime_subcode,
            num_prec_radix: unsigned.map(|_| 10),
            interval_precision: None,
        });
    }
    types.build()
}
