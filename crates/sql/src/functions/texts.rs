//! String functions that rules of this crate insert: one translates a computed pattern of `LIKE … ESCAPE`, another one
//! casts to UUID.

use crate::dialect::escaped_anew;
use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use farpool_model::Error;
use std::sync::Arc;

/// Registers the functions in `context`.
pub(super) fn register(context: &SessionContext) {
    for (kind, count) in [(Kind::LikePattern, 2), (Kind::Uuid, 1)] {
        let signature = Signature::exact(vec![DataType::Utf8; count], Volatility::Immutable);
        context.register_udf(ScalarUDF::from(OfTexts { kind, signature }));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// `like_pattern(pattern, escape)`: returns the LIKE pattern with the engine's escape character in place of
    /// `escape`.
    LikePattern,
    /// `to_uuid(text)`: returns a UUID in canonical form.
    Uuid,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfTexts {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for OfTexts {
    fn name(&self) -> &str {
        match self.kind {
            Kind::LikePattern => "like_pattern",
            Kind::Uuid => "to_uuid",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let texts = arrays[0].as_string::<i32>();
        let made: StringArray = match self.kind {
            Kind::LikePattern => {
                let escapes = arrays[1].as_string::<i32>();
                let pairs = texts.iter().zip(escapes.iter()).map(|pair| match pair {
                    (Some(pattern), Some(escape)) => escaped_anew(pattern, escape.chars().next()).map(Some),
                    _ => Ok(None),
                });
                pairs.collect::<Result<_>>()?
            }
            Kind::Uuid => texts.iter().map(|text| text.map(uuid).transpose()).collect::<Result<_>>()?,
        };
        Ok(ColumnarValue::Array(Arc::new(made)))
    }
}

/// Returns the canonical form of a UUID: 32 hexadecimal digits in lower case, in groups of 8, 4, 4, 4 and 12.
fn uuid(text: &str) -> Result<String> {
    let plain = text.trim().trim_start_matches('{').trim_end_matches('}');
    let digits: String = plain.chars().filter(|c| *c != '-').collect::<String>().to_lowercase();
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        let error = Error::invalid(format!("{text:?} is no UUID"));
        return Err(crate::error::wrap(error.advise("a UUID has 32 hexadecimal digits")));
    }
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    Ok(groups.join("-"))
}
