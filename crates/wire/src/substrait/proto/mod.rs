//! The part of Substrait (version 0.85, and older names) that farpool reads and writes, as protocol buffers.
//!
//! The structs are written by hand for three reasons. Nested relations and expressions stay encoded (as bytes), so that
//! the decoder can count levels and nodes *before* it goes deeper, whereas a generated decoder recurses first. Repeated
//! messages stay encoded, too, so that a decoded plan takes at most a small multiple of its size. And building needs no
//! `protoc`.
//!
//! Other parts of a plan are either declared here without their content, so that an error can name them, or do not
//! affect the result (hints) and are skipped.

mod expressions;
mod types;

pub use expressions::*;
pub use types::*;

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    #[prost(message, repeated, tag = "1")]
    pub extension_uris: Vec<Urn>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub extensions: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub relations: Vec<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub advanced_extensions: Option<AdvancedExtension>,
    #[prost(message, optional, tag = "6")]
    pub version: Option<Version>,
    #[prost(message, repeated, tag = "8")]
    pub extension_urns: Vec<Urn>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Version {
    #[prost(uint32, tag = "1")]
    pub major_number: u32,
    #[prost(uint32, tag = "2")]
    pub minor_number: u32,
    #[prost(uint32, tag = "3")]
    pub patch_number: u32,
    #[prost(string, tag = "5")]
    pub producer: String,
}

/// Substrait's message `SimpleExtensionURN`, and the older `SimpleExtensionURI`: the name of an extension, and its
/// anchor (id within the plan).
#[derive(Clone, PartialEq, Message)]
pub struct Urn {
    #[prost(uint32, tag = "1")]
    pub anchor: u32,
    #[prost(string, tag = "2")]
    pub urn: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SimpleExtensionDeclaration {
    #[prost(oneof = "MappingType", tags = "1, 2, 3")]
    pub mapping_type: Option<MappingType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum MappingType {
    #[prost(message, tag = "1")]
    Type(Declared),
    #[prost(message, tag = "2")]
    TypeVariation(Declared),
    #[prost(message, tag = "3")]
    Function(Declared),
}

/// Substrait's messages `ExtensionType`, `ExtensionTypeVariation` and `ExtensionFunction`, which have the same fields:
/// a type or function that the plan declares, with its anchor.
#[derive(Clone, PartialEq, Message)]
pub struct Declared {
    #[prost(uint32, tag = "1")]
    pub uri_reference: u32,
    #[prost(uint32, tag = "2")]
    pub anchor: u32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint32, tag = "4")]
    pub urn_reference: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AdvancedExtension {
    #[prost(message, optional, tag = "2")]
    pub enhancement: Option<Any>,
}

/// The message `google.protobuf.Any`: an encoded message of any type, with the URL of the type.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// farpool's own message: the version of the table to read, as the enhancement of a `NamedTable`.
#[derive(Clone, PartialEq, Message)]
pub struct TableVersion {
    #[prost(uint64, tag = "1")]
    pub version: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PlanRel {
    #[prost(oneof = "PlanRelType", tags = "1, 2")]
    pub rel_type: Option<PlanRelType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum PlanRelType {
    #[prost(bytes = "bytes", tag = "1")]
    Rel(Bytes),
    #[prost(message, tag = "2")]
    Root(RelRoot),
}

#[derive(Clone, PartialEq, Message)]
pub struct RelRoot {
    #[prost(bytes = "bytes", tag = "1")]
    pub input: Bytes,
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Rel {
    #[prost(
        oneof = "RelType",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22"
    )]
    pub rel_type: Option<RelType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum RelType {
    #[prost(message, tag = "1")]
    Read(ReadRel),
    #[prost(message, tag = "2")]
    Filter(FilterRel),
    #[prost(message, tag = "3")]
    Fetch(FetchRel),
    #[prost(message, tag = "4")]
    Aggregate(AggregateRel),
    #[prost(message, tag = "5")]
    Sort(SortRel),
    #[prost(message, tag = "6")]
    Join(JoinRel),
    #[prost(message, tag = "7")]
    Project(ProjectRel),
    #[prost(bytes = "bytes", tag = "8")]
    Set(Bytes),
    #[prost(bytes = "bytes", tag = "9")]
    ExtensionSingle(Bytes),
    #[prost(bytes = "bytes", tag = "10")]
    ExtensionMulti(Bytes),
    #[prost(bytes = "bytes", tag = "11")]
    ExtensionLeaf(Bytes),
    #[prost(bytes = "bytes", tag = "12")]
    Cross(Bytes),
    #[prost(bytes = "bytes", tag = "13")]
    HashJoin(Bytes),
    #[prost(bytes = "bytes", tag = "14")]
    MergeJoin(Bytes),
    #[prost(bytes = "bytes", tag = "15")]
    Exchange(Bytes),
    #[prost(bytes = "bytes", tag = "16")]
    Expand(Bytes),
    #[prost(bytes = "bytes", tag = "17")]
    Window(Bytes),
    #[prost(bytes = "bytes", tag = "18")]
    NestedLoopJoin(Bytes),
    #[prost(bytes = "bytes", tag = "19")]
    Write(Bytes),
    #[prost(bytes = "bytes", tag = "20")]
    Ddl(Bytes),
    #[prost(bytes = "bytes", tag = "21")]
    Reference(Bytes),
    #[prost(bytes = "bytes", tag = "22")]
    Update(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct RelCommon {
    #[prost(message, optional, tag = "2")]
    pub emit: Option<Emit>,
    #[prost(message, optional, tag = "3")]
    pub hint: Option<Hint>,
    #[prost(message, optional, tag = "4")]
    pub advanced_extension: Option<AdvancedExtension>,
}

/// Information that a reader may ignore. Only the names of the columns are read.
#[derive(Clone, PartialEq, Message)]
pub struct Hint {
    #[prost(string, repeated, tag = "4")]
    pub output_names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Emit {
    #[prost(int32, repeated, tag = "1")]
    pub output_mapping: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReadRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(message, optional, tag = "2")]
    pub base_schema: Option<NamedStruct>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub filter: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub projection: Option<MaskExpression>,
    #[prost(oneof = "ReadType", tags = "5, 6, 7, 8, 9")]
    pub read_type: Option<ReadType>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ReadType {
    #[prost(bytes = "bytes", tag = "5")]
    VirtualTable(Bytes),
    #[prost(bytes = "bytes", tag = "6")]
    LocalFiles(Bytes),
    #[prost(message, tag = "7")]
    NamedTable(NamedTable),
    #[prost(bytes = "bytes", tag = "8")]
    ExtensionTable(Bytes),
    #[prost(bytes = "bytes", tag = "9")]
    IcebergTable(Bytes),
}

/// A table that stands in the plan: its rows, as encoded [`Row`]s of literals in older plans, otherwise of expressions.
#[derive(Clone, PartialEq, Message)]
pub struct VirtualTable {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub values: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub expressions: Vec<Bytes>,
}

/// Substrait's messages `Literal.Struct` and `Nested.Struct`: the encoded literals or expressions of a row.
#[derive(Clone, PartialEq, Message)]
pub struct Row {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub fields: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NamedTable {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MaskExpression {
    #[prost(message, optional, tag = "1")]
    pub select: Option<StructSelect>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StructSelect {
    #[prost(message, repeated, tag = "1")]
    pub struct_items: Vec<StructItem>,
}

/// `StructItem`, and `StructField` of a reference, which have the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct StructItem {
    #[prost(int32, tag = "1")]
    pub field: i32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub child: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NamedStruct {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub r#struct: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub types: Vec<Bytes>,
    #[prost(uint32, tag = "2")]
    pub type_variation_reference: u32,
    #[prost(int32, tag = "3")]
    pub nullability: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct FilterRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub condition: Bytes,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct JoinRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub left: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub right: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub expression: Bytes,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub post_join_filter: Option<Bytes>,
    /// Number of the join type; `joins.rs` lists them.
    #[prost(int32, tag = "6")]
    pub join_type: i32,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

/// farpool's own message: what the type of a join does not say, as the enhancement of a `JoinRel`.
#[derive(Clone, PartialEq, Message)]
pub struct Lookup {
    /// 0: as the join type says; 1: `NOT IN`, of a left anti join; 2: the mark is false where it would be NULL, of a left
    /// mark join.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Name of the mark column.
    #[prost(string, tag = "2")]
    pub mark: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProjectRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub expressions: Vec<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FetchRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(int64, optional, tag = "3")]
    pub offset: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub count: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub offset_expr: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub count_expr: Option<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SortRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub sorts: Vec<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SortField {
    #[prost(bytes = "bytes", tag = "1")]
    pub expr: Bytes,
    #[prost(oneof = "SortKind", tags = "2, 3")]
    pub sort_kind: Option<SortKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SortKind {
    #[prost(int32, tag = "2")]
    Direction(i32),
    #[prost(uint32, tag = "3")]
    ComparisonFunction(u32),
}

#[derive(Clone, PartialEq, Message)]
pub struct AggregateRel {
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelCommon>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub groupings: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub measures: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub grouping_expressions: Vec<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub advanced_extension: Option<AdvancedExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Grouping {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub grouping_expressions: Vec<Bytes>,
    #[prost(uint32, repeated, tag = "2")]
    pub expression_references: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Measure {
    #[prost(message, optional, tag = "1")]
    pub measure: Option<AggregateFunction>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub filter: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AggregateFunction {
    #[prost(uint32, tag = "1")]
    pub function_reference: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub args: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub sorts: Vec<Bytes>,
    #[prost(int32, tag = "4")]
    pub phase: i32,
    #[prost(message, optional, tag = "5")]
    pub output_type: Option<Type>,
    #[prost(int32, tag = "6")]
    pub invocation: i32,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub arguments: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub options: Vec<Bytes>,
}

/// For `SORT_DIRECTION_ASC_NULLS_FIRST` and the three values after it: the number, whether the order is descending, and
/// whether NULLs come first.
pub const SORT_DIRECTIONS: [(i32, bool, bool); 4] =
    [(1, false, true), (2, false, false), (3, true, true), (4, true, false)];
/// Number of the enum value `AGGREGATION_PHASE_INITIAL_TO_RESULT`.
pub const PHASE_INITIAL_TO_RESULT: i32 = 3;
/// Number of the enum value `AGGREGATION_INVOCATION_ALL`.
pub const INVOCATION_ALL: i32 = 1;
/// Number of the enum value `AGGREGATION_INVOCATION_DISTINCT`.
pub const INVOCATION_DISTINCT: i32 = 2;
