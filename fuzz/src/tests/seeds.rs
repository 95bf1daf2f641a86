//! Generates the seeds (initial inputs) of the fuzz corpora that can be generated.

mod queries;

use super::*;
use arrow_array::*;
use arrow_schema::DataType;
use bytes::Bytes;
use farpool_cipher::{KeyKind, KeyRing, Secret, Tier, WrappedKey, WrappedKeyId};
use farpool_codec::{Codec, Compressor};
use farpool_columns::{encode_row_group, pack_array, pack_chunks};
use farpool_disk::{
    CompressionPolicy, Directory, Log, NewPart, ReservePolicy, SegmentWriter, SimulatedDirectory, compressing,
};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::*;
use farpool_statistics::{Histogram, Sketch};
use farpool_wire::sealed::{NodeProof, Opener, PrivateKey, Proof, SealedRequest, Sealer};
use farpool_wire::{
    FRAME_HEADER_BYTES, FrameKind, Message, Outgoing, PREFACE, Request, Response, Sealing, encode_batch,
    substrait,
};
use queries::*;
use std::sync::Arc;

/// Writes the seeds that can be generated; the other files in the corpus were found by fuzzing. Run it after a change
/// of a format: `cargo test -p farpool-fuzz -- --ignored`.
#[test]
#[ignore = "writes into the corpus"]
fn write_the_seeds() {
    for (target, seeds) in [
        ("plan_decoder", plan_seeds()),
        ("prepare_and_run", run_seeds()),
        ("native_messages", message_seeds()),
        ("sealed_messages", sealed_seeds()),
        ("block_decoder", block_seeds()),
        ("segment_reader", segment_seeds()),
        ("chunk_decoder", chunk_seeds()),
        ("data_directory", data_seeds()),
        ("load_rows", load_seeds()),
        ("log_reader", log_seeds()),
        ("key_ring_decoder", key_ring_seeds()),
        ("key_records", record_seeds()),
        ("packed_values", packed_seeds()),
        ("parcel_decoder", parcel_seeds()),
        ("predicate_parser", predicate_seeds()),
        ("resp_decoder", resp_seeds()),
        ("postgres_messages", postgres_seeds()),
        ("flight_messages", flight_seeds()),
        ("sketch_decoder", sketch_seeds()),
        ("datasketches_decoder", datasketches_seeds()),
        ("hll_decoder", hll_seeds()),
        ("moments_decoder", moments_seeds()),
        ("histogram_decoder", histogram_seeds()),
    ] {
        std::fs::create_dir_all(folder(target)).unwrap();
        for (place, seed) in seeds.iter().enumerate() {
            std::fs::write(folder(target).join(format!("seed-{place:02}")), seed).unwrap();
        }
    }
}

/// Creates encoded states of moments without their checksums, which the fuzz body adds.
fn moments_seeds() -> Vec<Vec<u8>> {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![Some(-7), None, Some(i32::MAX), Some(3)]));
    let longs: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1, 2, 3]));
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![1, -(1 << 100), 3, 4]));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN), None, Some(-2.5)]));
    let sets = [
        vec![],
        vec![longs.clone()],
        vec![longs, decimals.clone(), ints.clone()],
        vec![floats, ints, decimals],
    ];
    let both = [NullHandling::Pairwise, NullHandling::Listwise];
    let states = sets.iter().flat_map(|columns| both.map(|nulls| (columns, nulls)));
    let bytes = states.map(|(columns, nulls)| {
        let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
        let mut moments = farpool_statistics::Moments::new(&types, nulls).unwrap();
        moments.update(columns).unwrap();
        let mut bytes = moments.to_bytes();
        bytes.truncate(bytes.len() - 8);
        bytes
    });
    bytes.collect()
}

fn data_seeds() -> Vec<Vec<u8>> {
    [false, true].into_iter().flat_map(seeds_of_directory).collect()
}

/// Writes the wrapped encryption key of the encrypted data directories. Afterwards the seeds must be generated again,
/// because they were encrypted with the previous key.
#[test]
#[ignore = "writes into the source"]
fn write_the_keys() {
    let bytes = crate::data::seeds::new_keys();
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/directory.keys"), bytes).unwrap();
}

/// Returns the files of a data directory, encrypted or not, as they are after each of several steps (loads, changes,
/// drops).
fn seeds_of_directory(is_encrypted: bool) -> Vec<Vec<u8>> {
    let directory = crate::data::directory(is_encrypted).1;
    let catalog = crate::data::catalog();
    catalog.open(Arc::clone(&directory), 1).unwrap();
    let name = |name: &str| TableName::new(name).unwrap();
    let load = |table: &str, mode: LoadMode, rows: &RecordBatch| {
        let mut load = catalog
            .begin_load(&TenantName::default(), &name(table), &rows.schema(), mode.into(), None)
            .unwrap();
        load.push(rows).unwrap();
        load.commit().unwrap();
    };
    let mut seeds = Vec::new();
    let mut keep = || seeds.push(crate::data::seeds::directory_bytes(&*directory).unwrap());
    load("t", LoadMode::Create, &rows());
    load("t", LoadMode::Append, &rows());
    keep();
    let changes =
        [TableChange::Rename(name("u")), TableChange::DropColumn(rows().schema().field(0).name().clone())];
    catalog.alter_table(&TenantName::default(), &name("t"), &changes).unwrap().wait().unwrap();
    let view = View::new(name("v"), "select 1").unwrap();
    catalog.create_view(&TenantName::default(), view, false).unwrap().wait().unwrap();
    keep();
    catalog.checkpoint().unwrap();
    load("few", LoadMode::Create, &rows().slice(0, 1));
    keep();
    catalog.drop_table(&TenantName::default(), &name("u")).unwrap().wait().unwrap();
    catalog.drop_view(&TenantName::default(), &name("v")).unwrap().wait().unwrap();
    keep();
    seeds
}

fn block_seeds() -> Vec<Vec<u8>> {
    let text = b"of what repeats, much is saved; of noise, nothing is. ".repeat(40);
    let noise: Vec<u8> =
        (0..300_u32).map(|i| (i.wrapping_mul(i).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let zeros = vec![0; 60_000];
    let mut seeds = Vec::new();
    for (number, codec) in (0..).zip(Codec::ALL) {
        for plain in [&text, &noise, &zeros] {
            let mut block = Vec::new();
            assert!(Compressor::new().compress(codec, plain, 2 * plain.len(), &mut block));
            let length = (plain.len() as u16).to_le_bytes();
            seeds.push([&[number, length[0], length[1]], &block[..]].concat());
        }
    }
    seeds
}

fn segment_seeds() -> Vec<Vec<u8>> {
    let text = b"a text of a table; ".repeat(9000);
    let ways = [
        CompressionPolicy::None,
        CompressionPolicy::By(Codec::Lz4),
        CompressionPolicy::By(Codec::Zstd),
        CompressionPolicy::By(Codec::Deflate),
    ];
    let segment = |way| {
        let device = SimulatedDirectory::new();
        let directory = compressing(device.clone(), way);
        let mut writer = SegmentWriter::create(directory, 1).unwrap();
        let long = if way == CompressionPolicy::None { 5000 } else { text.len() };
        for (number, bytes) in [0, 100, long].into_iter().enumerate() {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&text[..bytes]);
            let (number, head) = (number as u64 * 7, vec![1; number]);
            let part = NewPart { number, head, bytes, key: None, may_be_packed: true };
            writer.add(part, write).unwrap();
        }
        writer.finish().unwrap();
        let file = device.open(&farpool_disk::segment_name(1)).unwrap();
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        crate::segment::seed_of(&bytes)
    };
    ways.map(segment).to_vec()
}

fn key_ring_seeds() -> Vec<Vec<u8>> {
    let master = crate::keys::master();
    let mut ring = KeyRing::new(&master);
    let mut seeds = vec![ring.to_bytes()];
    let mut parent = (WrappedKeyId::MASTER, Secret::take(&mut [1; 32]).unwrap());
    for kind in [KeyKind::Directory, KeyKind::Tenant, KeyKind::Table] {
        ring.add(&master, kind, Tier::Standard).unwrap();
        seeds.push(ring.to_bytes());
        let (wrapped, key) = WrappedKey::draw(kind, Tier::Strict, (parent.0, &parent.1)).unwrap();
        seeds.push(wrapped.to_bytes().to_vec());
        parent = (wrapped.id(), key);
    }
    seeds
}

/// Returns requests for sealed answers, and answers of several sizes that were sealed for an unknown key.
fn sealed_seeds() -> Vec<Vec<u8>> {
    let seed = |outgoing: Outgoing| {
        let kind = outgoing.kind().number();
        let frames = outgoing.frames(1).concat();
        // The message fits in one frame: its kind and its body are the seed.
        [&[kind], &frames[FRAME_HEADER_BYTES..]].concat()
    };
    let key = PrivateKey::random().unwrap();
    let results = ResultForm::default();
    let requests = [
        Request::Status,
        Request::Execute { plan: plan_seeds().swap_remove(0), schema: None, results },
        Request::ExecutePrepared { handle: 5, conditions: None, results },
        Request::ChangeRows { handle: 6, rows: 1, id: LoadId(3) },
    ];
    let sealed = requests.map(|request| {
        let plain = request.encode().unwrap().pop().unwrap();
        Opener::new(plain, &Proof::NodeKey(key.public()), [0; 32], None).unwrap().0
    });
    let mut seeds: Vec<Vec<u8>> = sealed.into_iter().map(seed).collect();
    let body = Bytes::copy_from_slice(&seeds[0][1..]);
    let message = Message { kind: FrameKind::Sealed, stream: 1, bytes_on_wire: 0, body };
    let request = SealedRequest::read(&message).unwrap();
    let sealer = Sealer::new(&request, None, NodeProof { key: Some(&key), ..NodeProof::default() }).unwrap();
    let error = Response::Error(Error::invalid("no")).encode().unwrap().pop().unwrap();
    let parcel = |bytes| Outgoing::new(FrameKind::Parcel, vec![vec![5; bytes].into()]).unwrap();
    seeds.push(seed(sealer.seal_error(error).unwrap()));
    seeds.extend([0, 100].map(|bytes| seed(sealer.seal_alone(parcel(bytes)).unwrap())));
    seeds
}

fn log_seeds() -> Vec<Vec<u8>> {
    let directory = SimulatedDirectory::new();
    let open = Log::open(Arc::clone(&directory) as Arc<dyn Directory>, Some(1), 0, &mut |_, _| Ok(()));
    let log = open.unwrap().0;
    for record in [&b"a change"[..], b"", &[7; 700]] {
        log.append(record, ReservePolicy::Normal).unwrap();
        log.commit(log.append(b"another", ReservePolicy::Normal).unwrap()).unwrap();
    }
    log.close().unwrap();
    let mut first = vec![0; 8 * 512];
    directory.open("log-000000000001").unwrap().read_at(&mut first, 0).unwrap();
    let end = first.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(512);
    first.truncate(end);
    // A second log file that continues the first one. The first file has six records in four batches, the last of which
    // marks its end.
    let mut second = b"farpool\n\x01\0\0\0\0\0\0\0".to_vec();
    [1, 5, 6, end as u64].iter().for_each(|number| second.extend_from_slice(&number.to_le_bytes()));
    second.resize(512, 0);
    let with_split = |files: &[u8]| [&(end as u16).to_le_bytes(), files].concat();
    // The first file without its last batch, and with only a part of it.
    let (short, torn) = (&first[..end - 512], &first[..end - 600]);
    vec![
        with_split(&first),
        with_split(&[first.clone(), second].concat()),
        with_split(short),
        with_split(torn),
    ]
}

fn histogram_seeds() -> Vec<Vec<u8>> {
    let columns: [ArrayRef; 6] = [
        Arc::new(Int64Array::from(vec![Some(3), None, Some(-5), Some(3), Some(1 << 40)])),
        Arc::new(Int32Array::from_iter_values((0..700).map(|i| i * i))),
        Arc::new(Decimal128Array::from(vec![i128::MAX, i128::MIN, 7])),
        Arc::new(Float64Array::from(vec![0.5, f64::NAN, -0.0, f64::INFINITY, 1e300, -5e-324])),
        Arc::new(Float32Array::from(vec![f32::NAN])),
        new_null_array(&DataType::Date32, 3),
    ];
    let state = |column: &ArrayRef| {
        let mut histogram = Histogram::new(column.data_type()).unwrap();
        histogram.update(column).unwrap();
        histogram.to_bytes()
    };
    columns.iter().map(state).collect()
}

fn chunk_seeds() -> Vec<Vec<u8>> {
    let count = 1500;
    let text = |i: usize| format!("https://example.org/{}/{}", i * 7919 % 1000, i % 13);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter((0..count).map(|i| (i % 11 > 0).then_some(i * 37 % 1000)))),
        Arc::new(Int32Array::from_iter_values((0..count as i32).map(|i| i * 65_537))),
        Arc::new(Int16Array::from_iter_values((0..count).map(|_| 7))),
        Arc::new(UInt64Array::from_iter_values((0..count as u64).map(|i| u64::MAX - i))),
        Arc::new(Decimal128Array::from_iter_values((0..300).map(|i| i128::MAX / 10 - i))),
        Arc::new(Float64Array::from_iter_values((0..300).map(|i| f64::from(i) / 3.0))),
        Arc::new(BooleanArray::from_iter((0..count).map(|i| (i % 5 > 0).then_some(i % 3 == 0)))),
        Arc::new(StringViewArray::from_iter_values(
            (0..count).map(|i| ["red", "green", "a longer colour"][i as usize % 3]),
        )),
        Arc::new(StringViewArray::from_iter((0..600).map(|i| (i % 9 > 0).then(|| text(i))))),
        Arc::new(BinaryViewArray::from_iter_values(
            (0..200u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()),
        )),
        new_null_array(&DataType::Date32, 100),
    ];
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let encode = |column: ArrayRef| {
        let field = arrow_schema::Field::new("c", column.data_type().clone(), true);
        let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
        encode_row_group(&pool, &TenantName::default(), &schema, &[column]).unwrap().chunks[0].clone()
    };
    // Column chunks that are large enough to have an outline.
    let large: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter((0..20_000i64).map(|i| (i % 11 > 0).then_some(i * 7919 % 100_003)))),
        Arc::new(Float64Array::from_iter_values((0..20_000).map(|i| f64::from(i) / 3.0))),
        Arc::new(StringViewArray::from_iter_values(
            (0..40_000).map(|i| format!("value {}", i * 7919 % 3001)),
        )),
    ];
    let outlines = large.map(|column| encode(column).to_outline().unwrap().expect("it is large"));
    let image = |column| crate::chunk::image_bytes(&encode(column).to_image().unwrap());
    columns.into_iter().map(image).chain(outlines).collect()
}

/// Creates parcels (packed rows): rows as packed arrays, as chunks of a table, and more of both.
fn parcel_seeds() -> Vec<Vec<u8>> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let few = rows();
    let packed: Vec<_> = few.columns().iter().map(|c| Arc::new(pack_array(c).unwrap())).collect();
    let many = more_rows();
    let group = encode_row_group(&pool, &TenantName::default(), &many.schema(), many.columns()).unwrap();
    let again: Vec<_> = many.columns().iter().map(|c| Arc::new(pack_array(c).unwrap())).collect();
    vec![
        pack_chunks(few.num_rows(), &packed).concat(),
        pack_chunks(group.rows, &group.chunks).concat(),
        pack_chunks(many.num_rows(), &again).concat(),
        pack_chunks(
            0,
            &few.slice(0, 0).columns().iter().map(|c| Arc::new(pack_array(c).unwrap())).collect::<Vec<_>>(),
        )
        .concat(),
    ]
}

/// Creates loads of several batches: plain, compressed, of rows that share strings, of one row, of no rows.
fn load_seeds() -> Vec<Vec<u8>> {
    let (few, many) = (rows(), more_rows());
    let text = strings_that_share_bytes();
    let forms = [None, Some(Compression::Lz4), Some(Compression::Zstd)];
    vec![
        load_of(&[few.clone(), few.slice(1, 1), few.slice(0, 0), few.clone()], None),
        load_of(std::slice::from_ref(&few), forms[1]),
        load_of(&[few.clone(), few], forms[2]),
        load_of(&[many.slice(0, 300), many.slice(7, 20)], forms[1]),
        load_of(&[many.slice(0, 99)], forms[0]),
        load_of(std::slice::from_ref(&text), forms[0]),
        load_of(&[text.clone(), text], forms[2]),
    ]
}

/// Creates conditions for keyspaces with a schema and without one; the first byte selects the keyspace.
fn predicate_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 6] = [
        b"\x01age > 30 and name like 'A%' or not (id in (1, 2) and price < 19.999)",
        b"\x01born between '1998-09-02' and '2000-02-29' and seen >= '1998-09-02 23:59:59.25+02:00'",
        b"\x01active and token = x'00ff' and score <> -1.5e3 and name is not null and name !~* '^a+b?$'",
        b"\x00u8@0 > 5 and u16@2 <= 700 and i64@8 in (1, -2) and not (f32@16 = 0.5 or f64@20 < 1e300)",
        b"\x02bytes[4:8] = 'abcd' or key ilike '%it''s_' and \"ttl\" is null and ttl < 9223372036854775808",
        b"\x00((not ((ttl = 1)) and 4.5 <= ttl) or false)",
    ];
    seeds.map(<[u8]>::to_vec).to_vec()
}

/// Creates tickets, and streams of rows with columns of many types, with and without dictionaries.
fn flight_seeds() -> Vec<Vec<u8>> {
    use arrow_array::types::Int8Type;
    use farpool_wire::flight::{Ticket, TicketTarget};
    let stream = |batch: &RecordBatch| {
        let options = arrow_ipc::writer::IpcWriteOptions::default();
        let mut tracker = arrow_ipc::writer::DictionaryTracker::new(false);
        let generator = arrow_ipc::writer::IpcDataGenerator::default();
        let schema =
            generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
        let (dictionaries, rows) =
            generator.encode(batch, &mut tracker, &options, &mut Default::default()).unwrap();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
        let parts = [schema].into_iter().chain(dictionaries).chain([rows]);
        parts.fold(Vec::new(), |stream, part| {
            let (header, body) = (part.ipc_message, part.arrow_data);
            [stream, length(&header).to_vec(), length(&body).to_vec(), header, body].concat()
        })
    };
    let column = |name: &str, array: ArrayRef| (name.to_string(), array);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a rather long text")]));
    let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("a rather long text")]));
    let bytes: ArrayRef = Arc::new(LargeBinaryArray::from(vec![Some(&b"\0\xff"[..]), Some(b""), None]));
    let fixed: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_iter([[1_u8, 2], [3, 4], [5, 6]].iter()).unwrap());
    let keys: DictionaryArray<Int8Type> =
        [Some("red"), None, Some("a rather long name")].into_iter().collect();
    let batches = [
        vec![column("n", Arc::clone(&numbers)), column("s", texts), column("b", bytes)],
        vec![column("v", views), column("f", fixed), column("e", new_null_array(&DataType::Null, 3))],
        vec![column("k", Arc::new(keys)), column("t", Arc::new(Time64MicrosecondArray::from(vec![1, 2, 3])))],
        vec![column("d", Arc::new(Decimal256Array::from(vec![None, None, None]))), column("n", numbers)],
    ];
    let tickets = [
        TicketTarget::Text { in_schema: Some("s".into()), text: "select 1".into() },
        TicketTarget::Prepared { handle: 5, binding: 7 },
    ];
    let tickets = tickets.into_iter().map(|target| Ticket { id: 3, schema: 9, target }.encode());
    let streams = batches.into_iter().map(|columns| stream(&RecordBatch::try_from_iter(columns).unwrap()));
    tickets.chain(streams).collect()
}

/// Creates pipelined requests of the Redis protocol in both of its forms (arrays and inline), valid and invalid; the
/// first byte determines how they are split.
fn postgres_seeds() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, body].concat()
    };
    let bind = |format: u8, value: &[u8]| {
        let length = u32::try_from(value.len()).unwrap().to_be_bytes();
        message(b'B', &[&b"p\0s\0\0\x01\0"[..], &[format], b"\0\x01", &length, value, b"\0\0"].concat())
    };
    let numeric = b"\0\x02\0\0\x40\0\0\x02\0\x7b\x11\x94";
    let list = b"\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x01\0\0\0\x01\0\0\0\x04\0\0\0\x05";
    // The first byte selects the type of the values, and the pieces in which messages come.
    vec![
        [vec![0], message(b'Q', b"select 1\0"), message(b'S', b""), message(b'X', b"")].concat(),
        [
            vec![4],
            message(b'P', b"s\0select $1\0\0\x01\0\0\0\x17"),
            bind(1, b"\0\0\0\x05"),
            message(b'E', b"p\0\0\0\0\0"),
        ]
        .concat(),
        [vec![17], bind(1, numeric), bind(0, b"-123.45")].concat(),
        [vec![9], bind(1, list), bind(0, b"{1,NULL,-3}")].concat(),
        [vec![14], bind(0, b"2024-02-29 12:00:00.5+02"), message(b'D', b"Ss\0"), message(b'C', b"Pp\0")]
            .concat(),
        [vec![1], bind(0, b"\\x00ff"), message(b'd', b"1\t2\n"), message(b'c', b""), message(b'f', b"why\0")]
            .concat(),
        b"\0\0\0\0\x16\0\x03\0\0user\0ann\0\0".to_vec(),
    ]
}

fn resp_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 7] = [
        b"\x00*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n",
        b"\x05*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$24\r\na value of several pieces\r\n",
        b"\x03set k \"\\x00\\n\\\"\" 'v\\'w'\r\n\r\nincrbyfloat k 1.5e3\n",
        b"\x11*2\r\n$4\r\nAUTH\r\n$16385\r\n*11\r\n",
        b"\x01*000001\r\n*-1\r\n*0\r\n$0\r\n",
        b"\x02GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00*4\r\n$11\r\nincrbyfloat\r\n$22\r\n-9223372036854775808.25\r\n$10\r\n0x1.8p-70a\r\n$6\r\n1e4932\r\n",
    ];
    seeds.map(<[u8]>::to_vec).to_vec()
}

/// Creates values of keys, each compressed by each codec, with a sample for a dictionary and without.
fn packed_seeds() -> Vec<Vec<u8>> {
    let values = [&b"{\"name\":\"Ada\",\"cart\":[1,2,3,4]}".repeat(3)[..], &[7; 300], b"no more than this"];
    let sample = b"{\"name\":\"Grace\",\"cart\":[]} and other texts of which values are made ".repeat(4);
    let mut seeds = Vec::new();
    for (number, codec) in [&b"lz4"[..], b"deflate", b"fsst"].into_iter().enumerate() {
        for sample in [&[][..], &sample] {
            let packer = farpool_kv::Packer::new(farpool_kv::Compression::named(codec).unwrap(), sample);
            for value in values {
                let mut seed = vec![number as u8];
                seed.extend_from_slice(&(sample.len() as u16).to_le_bytes());
                seed.extend_from_slice(sample);
                seed.extend_from_slice(&(value.len() as u16).to_le_bytes());
                if packer.pack(value, value.len(), &mut seed) {
                    seeds.push(seed);
                }
            }
        }
    }
    seeds
}

/// Creates log records of changes of keys, each preceded by its length: all effects of commands, several effects in one
/// record, and a record in parts.
fn record_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[&[u8]]; 5] = [
        // Effects on strings: put, edited, put with an expiry, put again without one, removed.
        &[
            b"\x00\x05\x01\x00\x01\x00\x00\x05ahello\x02\x00\x01\x09\x07\x02a!?",
            b"\x00\x80\x01\x03\x00\x01\x64a\x01\x03\x02\x00\x65\x01bb1\x04\x00\x01a",
        ],
        // Effects on hashes: fields of a small hash and of one that becomes large; a field is removed.
        &[
            b"\x00\x05\x01\x00\x01\x01\x00\x06h\x01\x00\x01\x00fv\x05\x00\x01\x01\x02hgww",
            b"\x00\x06\x05\x00\x01\x01\x46hk0123456789012345678901234567890123456789012345678901234567890123456789\
              \x06\x00\x01\x01hf\x03\x00\x01\x7fh",
        ],
        // One record, split into three parts.
        &[
            b"\x01\x05idididid\x01\x00\x01\x00",
            b"\x02\x05idididid\x00\x03abc",
            b"\x03\x05ididididd\x07\x01",
        ],
        &[b"\x00\x07\x01\x04\x01\x00\x00\x01a1\x01\x05\x01\x00\x00\x01a1\x07\x04", b"\x00\x07\x08", b"\x00\x09"],
        // Effects on a keyspace that compresses its values: its dictionary, and a value, which is edited.
        &[
            b"\x00\x05\x0a\x14\x10\x00\x00\x00\x02\x01\x00\x00\x00s\x02\x00\x00\x00s:\x00\x00\x00\x00\
              \x0c\x10\x460123456789012345678901234567890123456789012345678901234567890123456789\
              \x01\x10\x03\x00\x00\x46s:a0123456789012345678901234567890123456789012345678901234567890123456789\
              \x02\x10\x03\x50\x46\x02s:a!?",
        ],
    ];
    let joined = |records: &[&[u8]]| {
        let with_length =
            records.iter().flat_map(|record| [&(record.len() as u16).to_le_bytes(), *record].concat());
        with_length.collect()
    };
    seeds.map(joined).to_vec()
}

fn strings_that_share_bytes() -> RecordBatch {
    let values = StringViewArray::from_iter_values(["a string that many rows refer to", "b"]);
    let views: Vec<u128> = values.views().iter().copied().cycle().take(50).collect();
    let text: ArrayRef = Arc::new(StringViewArray::new(views.into(), values.data_buffers(), None));
    RecordBatch::try_from_iter_with_nullable([("s", text, true)]).unwrap()
}

fn load_of(batches: &[RecordBatch], compression: Option<Compression>) -> Vec<u8> {
    let table = TableName::new("items").unwrap();
    let schema = batches[0].schema();
    let begin =
        Request::LoadBegin { table, options: LoadMode::Create.into(), schema, rows_hint: Some(9), id: None };
    let batches = batches.iter().map(|batch| encode_batch(FrameKind::LoadBatch, batch, compression).unwrap());
    let messages = begin.encode().unwrap().into_iter().chain(batches.flat_map(|batch| batch.messages));
    // Each message fits in one frame, whose body is the seed.
    let body = |message: farpool_wire::Outgoing| message.frames(1).concat().split_off(FRAME_HEADER_BYTES);
    messages.map(body).flat_map(|body| [&(body.len() as u32).to_le_bytes()[..], &body].concat()).collect()
}

/// Creates encoded states of sketches without their checksums. They have few counters, so that a mutation is likely to
/// change one that matters.
fn sketch_seeds() -> Vec<Vec<u8>> {
    let counters = Some(Counters { rows: 2, precision: 4 });
    let all = SketchParameters {
        distinct: Some(4),
        frequency: counters,
        second_moment: counters,
        top: 2,
        quantiles: None,
    };
    let apart = SketchParameters { frequency: Some(Counters { rows: 3, precision: 5 }), ..all };
    let few = SketchParameters {
        distinct: Some(12),
        frequency: None,
        second_moment: None,
        top: 0,
        quantiles: None,
    };
    let ranks = SketchParameters { quantiles: Some(8), ..SketchParameters::NONE };
    let columns: Vec<(SketchParameters, ArrayRef)> = vec![
        (all, Arc::new(Int64Array::from(vec![Some(3), None, Some(-5), Some(3)]))),
        (all, Arc::new(Int32Array::from_iter_values((0..500).map(|i| i * i)))),
        (apart, Arc::new(StringViewArray::from(vec!["a", "bc", "a"]))),
        (apart, Arc::new(Float64Array::from(vec![0.5, f64::NAN, -0.0]))),
        (few, Arc::new(Decimal128Array::from(vec![i128::MAX, 7]))),
        (ranks, Arc::new(Decimal128Array::from(vec![i128::MAX, i128::MIN, 7]))),
        (ranks, Arc::new(Float64Array::from_iter_values((0..100).map(f64::from)))),
        (SketchParameters { quantiles: Some(9), ..all }, Arc::new(Int64Array::from_iter_values(-30..30))),
        (few, Arc::new(TimestampSecondArray::from(vec![1, 2]).with_timezone("UTC"))),
        (few, Arc::new(BooleanArray::from(vec![None, Some(true)]))),
        (all, new_null_array(&DataType::BinaryView, 3)),
        (SketchParameters::default(), Arc::new(Date32Array::from(vec![9]))),
    ];
    let state = |(parameters, column): (SketchParameters, ArrayRef)| {
        let mut sketch = Sketch::new(parameters, column.data_type()).unwrap();
        sketch.update(&column).unwrap();
        let mut bytes = sketch.to_bytes();
        bytes.truncate(bytes.len() - 8);
        bytes
    };
    columns.into_iter().map(state).collect()
}

/// Creates HyperLogLogs of Redis: empty, with few elements, with as many as the sparse encoding holds, and a dense one.
fn hll_seeds() -> Vec<Vec<u8>> {
    let of = |elements: u32| {
        let mut value = farpool_statistics::redis_hll::Writer::new();
        for element in 0..elements {
            value.add(&element.to_le_bytes()).unwrap();
        }
        value.bytes().to_vec()
    };
    [0, 3, 100, 1000, 3000].map(of).to_vec()
}

/// Creates states that DataSketches wrote in each of its forms: the fixtures of the statistics crate, except
/// the largest.
fn datasketches_seeds() -> Vec<Vec<u8>> {
    let text = include_str!("../../../crates/statistics/testdata/datasketches.txt");
    let states =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next_back());
    let small = states.filter(|hex| hex.len() < 2_000);
    small.map(bytes_of_hex).collect()
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Creates rows with values in every column; there are more rows than one block has.
fn more_rows() -> RecordBatch {
    let count = 1100_i64;
    let schema = plan::table_schema();
    let text = |i: i64| format!("https://example.org/{}/{}", i * 7919 % 1000, i % 13);
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter((0..count).map(|i| (i % 7 > 0).then_some(i * 37 % 1000))));
        match field.data_type() {
            DataType::Utf8View => Arc::new(StringViewArray::from_iter_values((0..count).map(text))),
            DataType::Boolean => Arc::new(BooleanArray::from_iter((0..count).map(|i| Some(i % 3 == 0)))),
            DataType::Float64 => Arc::new(Float64Array::from_iter_values((0..count).map(|i| i as f64 / 3.0))),
            DataType::Int64 => numbers,
            other => arrow_cast_of(&numbers, other),
        }
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

/// Converts small numbers to another type.
fn arrow_cast_of(numbers: &ArrayRef, data_type: &DataType) -> ArrayRef {
    let data = numbers.to_data();
    let values: Vec<i64> = data.buffers()[0].typed_data::<i64>().to_vec();
    let width = data_type.primitive_width().unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|v| i128::from(*v).to_le_bytes()[..width].to_vec()).collect();
    let buffer = arrow_array::cast::as_primitive_array::<types::Int64Type>(&numbers).nulls().cloned();
    let data = numbers
        .to_data()
        .into_builder()
        .data_type(data_type.clone())
        .buffers(vec![bytes.into()])
        .nulls(buffer)
        .align_buffers(true)
        .build()
        .unwrap();
    make_array(data)
}
