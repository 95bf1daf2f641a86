//! The state of a sketch as bytes. All numbers are LEB128 (signed ones zigzag), unless they say otherwise:
//!
//! ```text
//! version       1, or 2 with quantiles
//! type          a tag; for decimals precision and scale, for timestamps the unit and the zone
//! parameters    precision of HyperLogLog or 0; rows and precision of Count-Min, of Fast-AGMS (0 0: none); top;
//!               in version 2 the size of KLL's highest level
//! rows, NULLs
//! range         where there are values: the least, the greatest
//! sum           where there are numbers: 32 bytes, little-endian; of floats twice 8 bytes
//! HyperLogLog   0, count, coupons in ascending order, each as the difference to the one before;
//!               or 1, registers of 6 bits, four in three bytes, the first in the lowest bits
//! counters      of Count-Min unless Fast-AGMS serves it, of Fast-AGMS: cells row by row, a run of zeros as
//!               0 and its length
//! top           values looked at, count, values in the order of their hashes
//! KLL           in version 2: a byte, levels; of each, the lowest first, count, the least value, signed, and each
//!               other as the difference to the one before; 8 bytes, a float, the squares of ranks' steps; 8 bytes
//!               from which the next random bits follow
//! checksum      8 bytes
//! ```
//!
//! Invariant: equal states have equal bytes, and if bytes can be decoded, encoding the decoded state gives the same
//! bytes.

use super::Sketch;
use super::basics::{Basics, Sum};
use super::counters::{Shape, Table};
use super::distinct::{COUPON_BITS, Coupons, Distinct, RANK_MAX, State, coupons_max};
use super::hashed::hash_of;
use super::quantiles::Quantiles;
use crate::bytes::{Reader, damaged, opened, put, put_signed, sealed};
use arrow_buffer::i256;
use arrow_schema::DataType;
use farpool_model::{
    Counters, Literal, Result, SketchParameters, TYPE_NUMBERS, Value, limits, numbered_type, numbered_unit,
    type_number, unit_number,
};

const VERSION: u8 = 1;
/// Version of states with quantiles. Readers that know only version 1 refuse it.
const VERSION_OF_QUANTILES: u8 = 2;

/// Tags of types with parameters. Other types are written as their type numbers.
const DECIMAL: u8 = 14;
const TIMESTAMP: u8 = 15;
const _: () = assert!(TYPE_NUMBERS <= DECIMAL);

impl Sketch {
    /// Encodes the state for [`Sketch::from_bytes`]. Sketches of few values are small.
    pub fn to_bytes(&self) -> Vec<u8> {
        let version = if self.quantiles.is_some() { VERSION_OF_QUANTILES } else { VERSION };
        let mut out = vec![version];
        put_type(&mut out, &self.data_type);
        put_parameters(&mut out, &self.parameters);
        self.put_basics(&mut out);
        if let Some(distinct) = &self.distinct {
            put_distinct(&mut out, distinct);
        }
        [&self.frequency, &self.second_moment].into_iter().flatten().for_each(|t| put_table(&mut out, t));
        if self.parameters.top > 0 {
            let kept = self.top.kept(&|hash| self.count(hash));
            put(&mut out, self.top.seen().into());
            put(&mut out, kept.len() as u128);
            kept.iter().for_each(|(_, value)| put_literal(&mut out, value));
        }
        self.quantiles.iter().for_each(|quantiles| quantiles.put(&mut out));
        sealed(out)
    }

    /// Decodes a state that [`Sketch::to_bytes`] encoded.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are corrupt or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Sketch> {
        let mut reader = Reader(opened(bytes)?);
        let version = reader.byte()?;
        if ![VERSION, VERSION_OF_QUANTILES].contains(&version) {
            let known = VERSION_OF_QUANTILES;
            return Err(damaged(format!("it has version {version}, this reads those up to {known}")));
        }
        let data_type = read_type(&mut reader)?;
        let mut parameters = read_parameters(&mut reader)?;
        if version == VERSION_OF_QUANTILES {
            let k = u16::try_from(reader.number()?).map_err(|_| damaged("its sample is too large"))?;
            parameters.quantiles = Some(k);
        }
        let mut sketch = Sketch::new(parameters, &data_type).map_err(|error| damaged(error.message))?;
        sketch.read_basics(&mut reader)?;
        let values = sketch.basics.values();
        if let Some(distinct) = &mut sketch.distinct {
            *distinct = read_distinct(&mut reader, distinct.precision(), values)?;
        }
        for table in [&mut sketch.frequency, &mut sketch.second_moment].into_iter().flatten() {
            *table = read_table(&mut reader, table.shape(), values)?;
        }
        if parameters.top > 0 {
            sketch.read_top(&mut reader)?;
        }
        if let (Some(quantiles), Some(k)) = (&mut sketch.quantiles, parameters.quantiles) {
            *quantiles = Quantiles::read(&mut reader, k, &data_type, values)?;
        }
        reader.end()?;
        Ok(sketch)
    }

    fn put_basics(&self, out: &mut Vec<u8>) {
        let basics = &self.basics;
        put(out, basics.rows.into());
        put(out, basics.nulls.into());
        let Some((low, high)) = &basics.range else { return };
        put_literal(out, low);
        put_literal(out, high);
        match basics.sum {
            Some(Sum::Integer(sum)) => out.extend(sum.to_le_bytes()),
            Some(Sum::Float { sum, rest }) => {
                out.extend(sum.to_le_bytes());
                out.extend(rest.to_le_bytes());
            }
            None => {}
        }
    }

    fn read_basics(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (rows, nulls) = (reader.u64()?, reader.u64()?);
        if nulls > rows || rows > limits::SKETCH_ROWS_MAX {
            return Err(damaged(format!("{nulls} of {rows} rows are NULL")));
        }
        let mut basics = Basics { rows, nulls, ..Basics::new(&self.data_type) };
        if rows > nulls {
            let low = read_literal(reader, &self.data_type)?;
            let high = read_literal(reader, &self.data_type)?;
            if !low.compare(&high).is_some_and(std::cmp::Ordering::is_le) {
                return Err(damaged(format!("its least value is {low} and its greatest {high}")));
            }
            basics.range = Some((low, high));
            basics.sum = match basics.sum {
                Some(Sum::Integer(_)) => Some(Sum::Integer(i256::from_le_bytes(reader.array()?))),
                Some(Sum::Float { .. }) => {
                    let mut float = || Ok(f64::from_le_bytes(reader.array()?));
                    Some(Sum::Float { sum: float()?, rest: float()? })
                }
                None => None,
            };
        }
        self.basics = basics;
        Ok(())
    }

    fn read_top(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (seen, count) = (reader.u64()?, reader.count()?);
        if seen > self.basics.values() || count > super::Candidates::kept_max(self.parameters.top) {
            return Err(damaged(format!("it has {count} frequent values of {seen}")));
        }
        self.top.set_seen(seen);
        let mut last = None;
        for _ in 0..count {
            let value = read_literal(reader, &self.data_type)?;
            let hash = hash_of(&value);
            if last.is_some_and(|last| last >= hash)
                || super::literal_bytes(&value) > limits::SKETCH_VALUE_BYTES_MAX
                || self.count(hash) == 0
            {
                return Err(damaged(format!("{value} cannot be among the frequent values in its place")));
            }
            last = Some(hash);
            self.top.insert(hash, value);
        }
        Ok(())
    }
}

fn put_type(out: &mut Vec<u8>, data_type: &DataType) {
    match data_type {
        DataType::Decimal128(precision, scale) => out.extend([DECIMAL, *precision, *scale as u8]),
        DataType::Timestamp(unit, zone) => {
            out.extend([TIMESTAMP, unit_number(*unit)]);
            let zone = zone.as_deref().unwrap_or_default();
            put(out, zone.len() as u128);
            out.extend(zone.as_bytes());
        }
        plain => out.push(type_number(plain).expect("a canonical type")),
    }
}

fn read_type(reader: &mut Reader<'_>) -> Result<DataType> {
    let tag = reader.byte()?;
    match tag {
        DECIMAL => Ok(DataType::Decimal128(reader.byte()?, reader.byte()?.cast_signed())),
        TIMESTAMP => {
            let unit = numbered_unit(reader.byte()?);
            let unit = unit.ok_or_else(|| damaged("it has an unknown unit of time"))?;
            let zone = text(reader)?;
            Ok(DataType::Timestamp(unit, (!zone.is_empty()).then(|| zone.into())))
        }
        plain => numbered_type(plain).ok_or_else(|| damaged(format!("it is of an unknown type, {plain}"))),
    }
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str> {
    let bytes = reader.count()?;
    std::str::from_utf8(reader.take(bytes)?).map_err(|_| damaged("a string is not UTF-8"))
}

fn put_parameters(out: &mut Vec<u8>, parameters: &SketchParameters) {
    out.push(parameters.distinct.unwrap_or(0));
    for counters in [parameters.frequency, parameters.second_moment] {
        out.extend(counters.map_or([0, 0], |c| [c.rows, c.precision]));
    }
    put(out, parameters.top.into());
    parameters.quantiles.iter().for_each(|k| put(out, (*k).into()));
}

fn read_parameters(reader: &mut Reader<'_>) -> Result<SketchParameters> {
    let distinct = Some(reader.byte()?).filter(|precision| *precision != 0);
    let mut counters = || {
        let [rows, precision] = reader.array()?;
        Ok(Some(Counters { rows, precision }).filter(|c| (c.rows, c.precision) != (0, 0)))
    };
    let (frequency, second_moment) = (counters()?, counters()?);
    let top = u32::try_from(reader.number()?).map_err(|_| damaged("it keeps too many values"))?;
    Ok(SketchParameters { distinct, frequency, second_moment, top, quantiles: None })
}

fn put_literal(out: &mut Vec<u8>, literal: &Literal) {
    let bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
        put(out, bytes.len() as u128);
        out.extend(bytes);
    };
    match literal.value() {
        Value::Null => unreachable!("a sketch keeps no NULLs"),
        Value::Bool(v) => out.push((*v).into()),
        Value::Int(v) => put_signed(out, *v),
        Value::Float(v) => out.extend(v.to_le_bytes()),
        Value::Text(v) => bytes(out, v.as_bytes()),
        Value::Bytes(v) => bytes(out, v),
    }
}

fn read_literal(reader: &mut Reader<'_>, data_type: &DataType) -> Result<Literal> {
    let value = match data_type {
        DataType::Boolean => match reader.byte()? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            other => return Err(damaged(format!("{other} is no truth value"))),
        },
        DataType::Float32 | DataType::Float64 => {
            let value = f64::from_le_bytes(reader.array()?);
            if value.is_nan() && value.to_bits() != f64::NAN.to_bits() {
                return Err(damaged("it has a NaN of its own"));
            }
            Value::Float(value)
        }
        DataType::Utf8View => Value::Text(text(reader)?.to_string()),
        DataType::BinaryView => {
            let bytes = reader.count()?;
            Value::Bytes(reader.take(bytes)?.to_vec())
        }
        _ => Value::Int(reader.signed()?),
    };
    Literal::new(value, data_type.clone()).map_err(|error| damaged(error.message))
}

fn put_distinct(out: &mut Vec<u8>, distinct: &Distinct) {
    match distinct.state() {
        State::Few(coupons) => {
            out.push(0);
            put(out, coupons.len() as u128);
            let mut last = 0;
            for coupon in coupons.sorted() {
                put(out, (coupon - last).into());
                last = coupon;
            }
        }
        State::Many(registers) => {
            out.push(1);
            for four in registers.chunks_exact(4) {
                let bits = four.iter().rev().fold(0_u32, |bits, rank| bits << 6 | u32::from(*rank));
                out.extend(&bits.to_le_bytes()[..3]);
            }
        }
    }
}

fn read_distinct(reader: &mut Reader<'_>, precision: u8, values: u64) -> Result<Distinct> {
    let state = match reader.byte()? {
        0 => State::Few(read_coupons(reader, precision, values)?),
        1 => State::Many(read_registers(reader, precision, values)?),
        other => return Err(damaged(format!("its HyperLogLog has the unknown form {other}"))),
    };
    Ok(Distinct::from_state(precision, state))
}

fn read_coupons(reader: &mut Reader<'_>, precision: u8, values: u64) -> Result<Coupons> {
    let count = reader.count()?;
    if count > coupons_max(precision) || count as u64 > values || (count == 0) != (values == 0) {
        return Err(damaged(format!("{values} values have {count} coupons")));
    }
    let (mut coupons, mut last) = (Coupons::default(), 0_u32);
    for _ in 0..count {
        let next = u32::try_from(reader.number()?).ok().and_then(|more| last.checked_add(more));
        match next {
            Some(coupon) if coupon > last && coupon >> COUPON_BITS > 0 => {
                coupons.insert(coupon);
                last = coupon;
            }
            _ => return Err(damaged("the coupons of its HyperLogLog are not in order")),
        }
    }
    Ok(coupons)
}

fn read_registers(reader: &mut Reader<'_>, precision: u8, values: u64) -> Result<Vec<u8>> {
    let packed = reader.take((3 << precision) / 4)?;
    let registers: Vec<u8> = packed
        .chunks_exact(3)
        .flat_map(|b| {
            let bits = u32::from_le_bytes([b[0], b[1], b[2], 0]);
            [0, 6, 12, 18].map(|shift| (bits >> shift) as u8 & RANK_MAX)
        })
        .collect();
    if values <= coupons_max(precision) as u64 {
        return Err(damaged(format!("{values} values have registers")));
    }
    Ok(registers)
}

fn put_table(out: &mut Vec<u8>, table: &Table) {
    for row in 0..table.shape().rows.into() {
        let mut zeros = 0_u128;
        for cell in table.row(row) {
            if cell == 0 {
                zeros += 1;
            } else {
                put_zeros(out, &mut zeros);
                put(out, cell.into());
            }
        }
        put_zeros(out, &mut zeros);
    }
}

fn put_zeros(out: &mut Vec<u8>, zeros: &mut u128) {
    if *zeros > 0 {
        out.push(0);
        put(out, std::mem::take(zeros));
    }
}

fn read_table(reader: &mut Reader<'_>, shape: Shape, values: u64) -> Result<Table> {
    let mut cells = vec![0; usize::from(shape.rows) * shape.width()];
    for row in cells.chunks_exact_mut(shape.width()) {
        read_row(reader, row, values)?;
    }
    Ok(Table::from_cells(shape, cells))
}

fn read_row(reader: &mut Reader<'_>, row: &mut [u64], values: u64) -> Result<()> {
    let (mut place, mut total, mut after_zeros) = (0, 0_u64, false);
    while place < row.len() {
        let cell = reader.u64()?;
        if cell > 0 {
            row[place] = cell;
            total = total.checked_add(cell).ok_or_else(|| damaged("its counters add up to too much"))?;
            place += 1;
            after_zeros = false;
            continue;
        }
        let zeros = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
        if zeros == 0 || zeros > row.len() - place || after_zeros {
            return Err(damaged("it has more counters than a row has"));
        }
        place += zeros;
        after_zeros = true;
    }
    if total != values {
        return Err(damaged(format!("a row counted {total} of {values} values")));
    }
    Ok(())
}

/// Whether two states have equal encodings.
impl PartialEq for Sketch {
    fn eq(&self, other: &Sketch) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}
