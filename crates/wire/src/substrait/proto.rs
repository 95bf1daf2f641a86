//! The part of Substrait (version 0.85, with what older versions called differently) that farpool reads
//! and writes, as protocol buffers.
//!
//! Written by hand for three reasons. Nested relations and expressions are left as bytes, so that the
//! decoder counts levels and nodes *before* it goes deeper; a generated decoder recurses first. Repeated
//! messages are bytes too, so that a plan takes at most a small multiple of its size. And building needs no
//! `protoc`. What a plan may contain beyond this is either named here without its content, so that an error
//! can say what it was, or has no meaning for the result (hints).

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

/// `SimpleExtensionURN`, and the `SimpleExtensionURI` that it took the place of.
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

/// `ExtensionType`, `ExtensionTypeVariation` and `ExtensionFunction`, which have the same fields.
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

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Ours: the version of the table to read, as the enhancement of a `NamedTable`.
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
    #[prost(bytes = "bytes", tag = "5")]
    Sort(Bytes),
    #[prost(bytes = "bytes", tag = "6")]
    Join(Bytes),
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
    #[prost(message, optional, tag = "4")]
    pub advanced_extension: Option<AdvancedExtension>,
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

/// `AGGREGATION_PHASE_INITIAL_TO_RESULT`
pub const PHASE_INITIAL_TO_RESULT: i32 = 3;
/// `AGGREGATION_INVOCATION_ALL`
pub const INVOCATION_ALL: i32 = 1;
/// `AGGREGATION_INVOCATION_DISTINCT`
pub const INVOCATION_DISTINCT: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct FunctionArgument {
    #[prost(oneof = "ArgType", tags = "1, 2, 3")]
    pub arg_type: Option<ArgType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ArgType {
    #[prost(string, tag = "1")]
    Enum(String),
    #[prost(bytes = "bytes", tag = "2")]
    Type(Bytes),
    #[prost(bytes = "bytes", tag = "3")]
    Value(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct FunctionOption {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub preference: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Expression {
    #[prost(oneof = "RexType", tags = "1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16")]
    pub rex_type: Option<RexType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum RexType {
    #[prost(message, tag = "1")]
    Literal(Literal),
    #[prost(message, tag = "2")]
    Selection(FieldReference),
    #[prost(message, tag = "3")]
    ScalarFunction(ScalarFunction),
    #[prost(bytes = "bytes", tag = "5")]
    WindowFunction(Bytes),
    #[prost(message, tag = "6")]
    IfThen(IfThen),
    #[prost(bytes = "bytes", tag = "7")]
    SwitchExpression(Bytes),
    #[prost(message, tag = "8")]
    SingularOrList(SingularOrList),
    #[prost(bytes = "bytes", tag = "9")]
    MultiOrList(Bytes),
    #[prost(bytes = "bytes", tag = "10")]
    Enum(Bytes),
    #[prost(message, tag = "11")]
    Cast(Cast),
    #[prost(bytes = "bytes", tag = "12")]
    Subquery(Bytes),
    #[prost(bytes = "bytes", tag = "13")]
    Nested(Bytes),
    #[prost(bytes = "bytes", tag = "14")]
    DynamicParameter(Bytes),
    #[prost(bytes = "bytes", tag = "15")]
    Lambda(Bytes),
    #[prost(bytes = "bytes", tag = "16")]
    LambdaInvocation(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct FieldReference {
    #[prost(oneof = "ReferenceType", tags = "1, 2")]
    pub reference_type: Option<ReferenceType>,
    #[prost(oneof = "RootType", tags = "3, 4, 5, 6")]
    pub root_type: Option<RootType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ReferenceType {
    #[prost(message, tag = "1")]
    DirectReference(ReferenceSegment),
    #[prost(bytes = "bytes", tag = "2")]
    MaskedReference(Bytes),
}

#[derive(Clone, PartialEq, Oneof)]
pub enum RootType {
    #[prost(bytes = "bytes", tag = "3")]
    Expression(Bytes),
    #[prost(bytes = "bytes", tag = "4")]
    RootReference(Bytes),
    #[prost(bytes = "bytes", tag = "5")]
    OuterReference(Bytes),
    #[prost(bytes = "bytes", tag = "6")]
    LambdaParameterReference(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct ReferenceSegment {
    #[prost(oneof = "SegmentType", tags = "1, 2, 3")]
    pub reference_type: Option<SegmentType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SegmentType {
    #[prost(bytes = "bytes", tag = "1")]
    MapKey(Bytes),
    #[prost(message, tag = "2")]
    StructField(StructItem),
    #[prost(bytes = "bytes", tag = "3")]
    ListElement(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct ScalarFunction {
    #[prost(uint32, tag = "1")]
    pub function_reference: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub args: Vec<Bytes>,
    #[prost(message, optional, tag = "3")]
    pub output_type: Option<Type>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub arguments: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub options: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IfThen {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub ifs: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub r#else: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IfClause {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub r#if: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub then: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Cast {
    #[prost(message, optional, tag = "1")]
    pub r#type: Option<Type>,
    #[prost(bytes = "bytes", tag = "2")]
    pub input: Bytes,
    #[prost(int32, tag = "3")]
    pub failure_behavior: i32,
}

/// `FAILURE_BEHAVIOR_RETURN_NULL`
pub const FAILURE_RETURN_NULL: i32 = 1;
/// `FAILURE_BEHAVIOR_THROW_EXCEPTION`
pub const FAILURE_THROW_EXCEPTION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct SingularOrList {
    #[prost(bytes = "bytes", tag = "1")]
    pub value: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub options: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Literal {
    #[prost(
        oneof = "LiteralType",
        tags = "1, 2, 3, 5, 7, 10, 11, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37"
    )]
    pub literal_type: Option<LiteralType>,
    #[prost(bool, tag = "50")]
    pub nullable: bool,
    #[prost(uint32, tag = "51")]
    pub type_variation_reference: u32,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum LiteralType {
    #[prost(bool, tag = "1")]
    Boolean(bool),
    #[prost(int32, tag = "2")]
    I8(i32),
    #[prost(int32, tag = "3")]
    I16(i32),
    #[prost(int32, tag = "5")]
    I32(i32),
    #[prost(int64, tag = "7")]
    I64(i64),
    #[prost(float, tag = "10")]
    Fp32(f32),
    #[prost(double, tag = "11")]
    Fp64(f64),
    #[prost(string, tag = "12")]
    String(String),
    #[prost(bytes = "bytes", tag = "13")]
    Binary(Bytes),
    #[prost(int64, tag = "14")]
    Timestamp(i64),
    #[prost(int32, tag = "16")]
    Date(i32),
    #[prost(int64, tag = "17")]
    Time(i64),
    #[prost(bytes = "bytes", tag = "19")]
    IntervalYearToMonth(Bytes),
    #[prost(bytes = "bytes", tag = "20")]
    IntervalDayToSecond(Bytes),
    #[prost(string, tag = "21")]
    FixedChar(String),
    #[prost(message, tag = "22")]
    VarChar(VarChar),
    #[prost(bytes = "bytes", tag = "23")]
    FixedBinary(Bytes),
    #[prost(message, tag = "24")]
    Decimal(DecimalValue),
    #[prost(bytes = "bytes", tag = "25")]
    Struct(Bytes),
    #[prost(bytes = "bytes", tag = "26")]
    Map(Bytes),
    #[prost(int64, tag = "27")]
    TimestampTz(i64),
    #[prost(bytes = "bytes", tag = "28")]
    Uuid(Bytes),
    #[prost(message, tag = "29")]
    Null(Type),
    #[prost(bytes = "bytes", tag = "30")]
    List(Bytes),
    #[prost(bytes = "bytes", tag = "31")]
    EmptyList(Bytes),
    #[prost(bytes = "bytes", tag = "32")]
    EmptyMap(Bytes),
    #[prost(message, tag = "33")]
    UserDefined(UserDefinedValue),
    #[prost(message, tag = "34")]
    PrecisionTimestamp(PrecisionTimestampValue),
    #[prost(message, tag = "35")]
    PrecisionTimestampTz(PrecisionTimestampValue),
    #[prost(bytes = "bytes", tag = "36")]
    IntervalCompound(Bytes),
    #[prost(bytes = "bytes", tag = "37")]
    PrecisionTime(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct VarChar {
    #[prost(string, tag = "1")]
    pub value: String,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct DecimalValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub value: Bytes,
    #[prost(int32, tag = "2")]
    pub precision: i32,
    #[prost(int32, tag = "3")]
    pub scale: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct PrecisionTimestampValue {
    #[prost(int32, tag = "1")]
    pub precision: i32,
    #[prost(int64, tag = "2")]
    pub value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserDefinedValue {
    #[prost(uint32, tag = "1")]
    pub type_reference: u32,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub type_parameters: Vec<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub r#struct: Option<StructValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StructValue {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub fields: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Type {
    #[prost(
        oneof = "Kind",
        tags = "1, 2, 3, 5, 7, 10, 11, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38"
    )]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    #[prost(message, tag = "1")]
    Bool(Simple),
    #[prost(message, tag = "2")]
    I8(Simple),
    #[prost(message, tag = "3")]
    I16(Simple),
    #[prost(message, tag = "5")]
    I32(Simple),
    #[prost(message, tag = "7")]
    I64(Simple),
    #[prost(message, tag = "10")]
    Fp32(Simple),
    #[prost(message, tag = "11")]
    Fp64(Simple),
    #[prost(message, tag = "12")]
    String(Simple),
    #[prost(message, tag = "13")]
    Binary(Simple),
    #[prost(message, tag = "14")]
    Timestamp(Simple),
    #[prost(message, tag = "16")]
    Date(Simple),
    #[prost(bytes = "bytes", tag = "17")]
    Time(Bytes),
    #[prost(bytes = "bytes", tag = "19")]
    IntervalYear(Bytes),
    #[prost(bytes = "bytes", tag = "20")]
    IntervalDay(Bytes),
    #[prost(message, tag = "21")]
    FixedChar(WithSize),
    #[prost(message, tag = "22")]
    Varchar(WithSize),
    #[prost(message, tag = "23")]
    FixedBinary(WithSize),
    #[prost(message, tag = "24")]
    Decimal(Decimal),
    #[prost(bytes = "bytes", tag = "25")]
    Struct(Bytes),
    #[prost(bytes = "bytes", tag = "27")]
    List(Bytes),
    #[prost(bytes = "bytes", tag = "28")]
    Map(Bytes),
    #[prost(message, tag = "29")]
    TimestampTz(Simple),
    #[prost(message, tag = "30")]
    UserDefined(UserDefined),
    #[prost(uint32, tag = "31")]
    UserDefinedTypeReference(u32),
    #[prost(bytes = "bytes", tag = "32")]
    Uuid(Bytes),
    #[prost(message, tag = "33")]
    PrecisionTimestamp(WithSize),
    #[prost(message, tag = "34")]
    PrecisionTimestampTz(WithSize),
    #[prost(bytes = "bytes", tag = "35")]
    IntervalCompound(Bytes),
    #[prost(bytes = "bytes", tag = "36")]
    PrecisionTime(Bytes),
    #[prost(bytes = "bytes", tag = "37")]
    Alias(Bytes),
    #[prost(bytes = "bytes", tag = "38")]
    Func(Bytes),
}

/// A type without parameters.
#[derive(Clone, PartialEq, Message)]
pub struct Simple {
    #[prost(uint32, tag = "1")]
    pub type_variation_reference: u32,
    #[prost(int32, tag = "2")]
    pub nullability: i32,
}

/// A type with a length or a precision.
#[derive(Clone, PartialEq, Message)]
pub struct WithSize {
    #[prost(int32, tag = "1")]
    pub size: i32,
    #[prost(uint32, tag = "2")]
    pub type_variation_reference: u32,
    #[prost(int32, tag = "3")]
    pub nullability: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Decimal {
    #[prost(int32, tag = "1")]
    pub scale: i32,
    #[prost(int32, tag = "2")]
    pub precision: i32,
    #[prost(uint32, tag = "3")]
    pub type_variation_reference: u32,
    #[prost(int32, tag = "4")]
    pub nullability: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserDefined {
    #[prost(uint32, tag = "1")]
    pub type_reference: u32,
    #[prost(uint32, tag = "2")]
    pub type_variation_reference: u32,
    #[prost(int32, tag = "3")]
    pub nullability: i32,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub type_parameters: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Parameter {
    #[prost(oneof = "ParameterKind", tags = "4, 6")]
    pub parameter: Option<ParameterKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ParameterKind {
    #[prost(int64, tag = "4")]
    Integer(i64),
    #[prost(string, tag = "6")]
    String(String),
}

/// `NULLABILITY_NULLABLE`
pub const NULLABLE: i32 = 1;
/// `NULLABILITY_REQUIRED`
pub const REQUIRED: i32 = 2;
