//! The tables `supplier`, `customer` and `part`.

use super::columns::{numbers, texts};
use crate::random::{Random, hash};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use std::ops::Range;
use tpchgen::distribution::Distributions;

/// The regions and their nations.
const REGIONS: [(&str, [&str; 5]); 5] = [
    ("AFRICA", ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"]),
    ("AMERICA", ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"]),
    ("ASIA", ["CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"]),
    ("EUROPE", ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"]),
    ("MIDDLE EAST", ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"]),
];

/// Characters of addresses.
const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ, ";

/// Seeds of the tables' rows.
const SUPPLIERS: u64 = 0x5500;
const CUSTOMERS: u64 = 0x5501;
const PARTS: u64 = 0x5502;

/// A supplier or a customer.
struct Company {
    key: i32,
    name: String,
    address: String,
    city: String,
    nation: &'static str,
    region: &'static str,
    phone: String,
    segment: &'static str,
}

impl Company {
    /// Generates the company with the number `index`, from 0, of the table that has this seed.
    fn at(index: u64, seed: u64, title: &str) -> Company {
        let (key, random) = (index as i32 + 1, &mut Random(hash(hash(seed) ^ index)));
        let place = random.between(0..=24);
        let (region, nations) = REGIONS[place as usize / 5];
        let nation = nations[place as usize % 5];
        let [first, second, third] = [100..=999, 100..=999, 1000..=9999].map(|part| random.between(part));
        let letters = random.between(10..=25);
        Company {
            key,
            name: format!("{title}#{key:09}"),
            address: (0..letters).map(|_| char::from(random.pick(LETTERS))).collect(),
            city: format!("{nation:<9.9}{}", random.between(0..=9)),
            nation,
            region,
            phone: format!("{}-{first}-{second}-{third}", 10 + place),
            segment: random.pick(Distributions::static_default().market_segments().get_values()),
        }
    }
}

/// Generates some rows of `supplier`.
pub fn suppliers(rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<Company> = rows.map(|row| Company::at(row, SUPPLIERS, "Supplier")).collect();
    RecordBatch::try_from_iter([
        ("s_suppkey", numbers(&rows, |row| row.key)),
        ("s_name", texts(&rows, |row| &row.name)),
        ("s_address", texts(&rows, |row| &row.address)),
        ("s_city", texts(&rows, |row| &row.city)),
        ("s_nation", texts(&rows, |row| row.nation)),
        ("s_region", texts(&rows, |row| row.region)),
        ("s_phone", texts(&rows, |row| &row.phone)),
    ])
}

/// Generates some rows of `customer`.
pub fn customers(rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<Company> = rows.map(|row| Company::at(row, CUSTOMERS, "Customer")).collect();
    RecordBatch::try_from_iter([
        ("c_custkey", numbers(&rows, |row| row.key)),
        ("c_name", texts(&rows, |row| &row.name)),
        ("c_address", texts(&rows, |row| &row.address)),
        ("c_city", texts(&rows, |row| &row.city)),
        ("c_nation", texts(&rows, |row| row.nation)),
        ("c_region", texts(&rows, |row| row.region)),
        ("c_phone", texts(&rows, |row| &row.phone)),
        ("c_mktsegment", texts(&rows, |row| row.segment)),
    ])
}

struct Part {
    key: i32,
    /// Two colors, of which the first is the part's color.
    name: String,
    manufacturer: String,
    category: String,
    brand: String,
    color: &'static str,
    kind: &'static str,
    size: i32,
    container: &'static str,
}

impl Part {
    /// Generates the part with the number `index`, from 0.
    fn at(index: u64) -> Part {
        let (words, random) = (Distributions::static_default(), &mut Random(hash(hash(PARTS) ^ index)));
        let [color, other] = [(); 2].map(|()| random.pick(words.part_colors().get_values()));
        let [manufacturer, category, brand] = [5, 5, 40].map(|values| random.between(1..=values));
        Part {
            key: index as i32 + 1,
            name: format!("{color} {other}"),
            manufacturer: format!("MFGR#{manufacturer}"),
            category: format!("MFGR#{manufacturer}{category}"),
            brand: format!("MFGR#{manufacturer}{category}{brand}"),
            color,
            kind: random.pick(words.part_types().get_values()),
            size: random.between(1..=50),
            container: random.pick(words.part_containers().get_values()),
        }
    }
}

/// Generates some rows of `part`.
pub fn parts(rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<Part> = rows.map(Part::at).collect();
    RecordBatch::try_from_iter([
        ("p_partkey", numbers(&rows, |row| row.key)),
        ("p_name", texts(&rows, |row| &row.name)),
        ("p_mfgr", texts(&rows, |row| &row.manufacturer)),
        ("p_category", texts(&rows, |row| &row.category)),
        ("p_brand1", texts(&rows, |row| &row.brand)),
        ("p_color", texts(&rows, |row| row.color)),
        ("p_type", texts(&rows, |row| row.kind)),
        ("p_size", numbers(&rows, |row| row.size)),
        ("p_container", texts(&rows, |row| row.container)),
    ])
}
