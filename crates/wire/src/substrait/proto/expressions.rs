//! Expressions and function calls of Substrait as protocol buffers. Nested messages stay encoded (as bytes), so that
//! the decoder can count levels before it goes deeper.

use super::StructItem;
use super::types::{Literal, Type};
use bytes::Bytes;
use prost::{Message, Oneof};

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

/// Number of the enum value `FAILURE_BEHAVIOR_RETURN_NULL`.
pub const FAILURE_RETURN_NULL: i32 = 1;
/// Number of the enum value `FAILURE_BEHAVIOR_THROW_EXCEPTION`.
pub const FAILURE_THROW_EXCEPTION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct SingularOrList {
    #[prost(bytes = "bytes", tag = "1")]
    pub value: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub options: Vec<Bytes>,
}
