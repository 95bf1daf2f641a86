//! Types and constants of Substrait as protocol buffers. Repeated messages stay encoded (as bytes), so that a decoded
//! plan takes at most a small multiple of its size.

use bytes::Bytes;
use prost::{Message, Oneof};

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

/// Number of the enum value `NULLABILITY_NULLABLE`.
pub const NULLABLE: i32 = 1;
/// Number of the enum value `NULLABILITY_REQUIRED`.
pub const REQUIRED: i32 = 2;
