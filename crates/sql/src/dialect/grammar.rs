//! The grammar of statements: the generic dialect of `sqlparser`, with these differences.
//!
//! - `x IS DISTINCT FROM y AND z`: the right operand ends at AND, OR and NOT, as in the SQL standard.
//! - `2 ^ 10` is a power and binds more tightly than `*`, as in PostgreSQL and DuckDB; exclusive OR of bits is `5 # 3`.
//! - `1_000_000` is a number.
//! - In `j#>>'{a}'`, the `#` is not part of a name.
//! - `j ->> 'a' = 'b'` compares the result of the arrow, as in PostgreSQL.

use crate::interrupt::steps::step;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::any::TypeId;

/// Precedence of `^`: above `*` and `/`, below the sign of a number and `::`.
const POWER: u8 = 45;

/// Precedence of `->` and similar JSON operators: below `+` and `-`, above comparisons and IS.
const ARROW: u8 = 25;

/// The `sqlparser` dialect that is used for every statement.
#[derive(Debug)]
pub struct Grammar;

macro_rules! as_the_generic_dialect {
    ($($method:ident)*) => {
        $(fn $method(&self) -> bool {
            GenericDialect.$method()
        })*
    };
}

impl Dialect for Grammar {
    /// Returns the type of the generic dialect, as which the parser treats this one where it compares dialects by their
    /// types.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        GenericDialect.is_delimited_identifier_start(c)
    }

    fn is_identifier_start(&self, c: char) -> bool {
        GenericDialect.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c != '#' && GenericDialect.is_identifier_part(c)
    }

    as_the_generic_dialect! {
        supports_unicode_string_literal supports_partition_by_after_order_by supports_array_join_syntax
        supports_group_by_expr supports_group_by_with_modifier supports_left_associative_joins_without_parens
        supports_connect_by supports_match_recognize supports_pipe_operator
        supports_start_transaction_modifier supports_window_function_null_treatment_arg
        supports_dictionary_syntax supports_window_clause_named_window_reference
        supports_parenthesized_set_variables supports_select_wildcard_except support_map_literal_syntax
        allow_extract_custom allow_extract_single_quotes supports_extract_comma_syntax
        supports_create_view_comment_syntax supports_parens_around_table_factor
        supports_values_as_table_factor supports_create_index_with_clause
        supports_explain_with_utility_options supports_limit_comma supports_update_order_by
        supports_from_first_select supports_projection_trailing_commas supports_asc_desc_in_column_definition
        supports_try_convert supports_bitwise_shift_operators supports_comment_on supports_load_extension
        supports_named_fn_args_with_assignment_operator supports_struct_literal supports_empty_projections
        supports_nested_comments supports_multiline_comment_hints supports_user_host_grantee
        supports_string_escape_constant supports_array_typedef_with_brackets supports_match_against
        supports_set_names supports_comma_separated_set_assignments supports_filter_during_aggregation
        supports_select_wildcard_exclude supports_data_type_signed_suffix supports_interval_options
        supports_quote_delimited_string supports_select_wildcard_replace supports_select_wildcard_ilike
        supports_select_wildcard_rename supports_optimize_table supports_install supports_detach
        supports_prewhere supports_with_fill supports_limit_by supports_interpolate supports_settings
        supports_select_format supports_comment_optimizer_hint supports_constraint_keyword_without_name
        supports_key_column_option supports_comma_separated_trim supports_cte_without_as
        supports_select_item_multi_column_alias supports_xml_expressions
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        if let Err(stopped) = step() {
            return Some(Err(stopped));
        }
        match parser.peek_token_ref().token {
            Token::Caret => Some(Ok(POWER)),
            Token::Arrow | Token::LongArrow | Token::HashArrow | Token::HashLongArrow => Some(Ok(ARROW)),
            _ => None,
        }
    }

    /// Parses a sign together with its operand, so that a power is applied after it: `-2 ^ 2` is 4, as in PostgreSQL.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(stopped) = step() {
            return Some(Err(stopped));
        }
        let op = match parser.peek_token_ref().token {
            Token::Minus => UnaryOperator::Minus,
            Token::Plus => UnaryOperator::Plus,
            _ => return None,
        };
        parser.advance_token();
        Some(parser.parse_subexpr(POWER).map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        let left = || Box::new(left.clone());
        if parser.consume_token(&Token::Caret) {
            let right = parser.parse_subexpr(POWER).map(Box::new);
            return Some(right.map(|right| Expr::BinaryOp {
                left: left(),
                op: BinaryOperator::PGExp,
                right,
            }));
        }
        let operand =
            |parser: &mut Parser| parser.parse_subexpr(self.prec_value(Precedence::Is)).map(Box::new);
        if parser.consume_token(&Token::Sharp) {
            let right = parser.parse_subexpr(self.prec_value(Precedence::Caret)).map(Box::new);
            let op = BinaryOperator::PGBitwiseXor;
            return Some(right.map(|right| Expr::BinaryOp { left: left(), op, right }));
        }
        if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            return Some(operand(parser).map(|right| Expr::IsDistinctFrom(left(), right)));
        }
        if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            return Some(operand(parser).map(|right| Expr::IsNotDistinctFrom(left(), right)));
        }
        None
    }
}
