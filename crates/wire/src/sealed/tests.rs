//! Tests of sealed answers (answers encrypted end to end for one request): the client can decrypt them, and refuses
//! answers that were changed, reordered, or made by another node or for another request.

use super::*;
use crate::message::Assembler;
use crate::{FrameHeader, Request, Response};
use farpool_model::{Receipt, TableName, limits};
use std::sync::Arc;

const STREAM: u32 = 7;

/// Digest of the access token that the client has sent to the node in its hello.
const SHOWN: Digest = [9; 32];

/// Returns `message` as the receiver assembles it from its frames on the stream `stream`.
fn received(message: Outgoing, stream: u32) -> Message {
    let bytes = message.frames(stream).concat();
    let (mut assembler, mut rest) = (Assembler::new(), &bytes[..]);
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::decode(header).unwrap();
        let (payload, after) = after.split_at(header.length as usize);
        if let Some(message) = assembler.push(header, Bytes::copy_from_slice(payload)).unwrap() {
            assert!(after.is_empty());
            return message;
        }
        rest = after;
    }
    panic!("a message without an end")
}

fn request() -> Outgoing {
    let request = Request::Execute { plan: vec![5; 100], schema: None, results: Default::default() };
    request.encode().unwrap().pop().unwrap()
}

fn parcel(bytes: usize) -> Outgoing {
    let body: Vec<u8> = (0..bytes).map(|at| (at / 3 % 251) as u8).collect();
    // A body in several pieces of memory, as that of column chunks is.
    let pieces = body.chunks(100_003).map(Bytes::copy_from_slice).collect();
    Outgoing::new(FrameKind::Parcel, pieces).unwrap()
}

fn receipt() -> Outgoing {
    Response::Receipt(Receipt { rows_returned: 77, ..Receipt::default() }).encode().unwrap().pop().unwrap()
}

fn error(text: &str) -> Outgoing {
    Response::Error(Error::invalid(text)).encode().unwrap().pop().unwrap()
}

/// The client's and the node's side of one request with sealed (encrypted) answers.
struct Pair {
    opener: Opener,
    sealer: Sealer,
}

fn token() -> TokenKey {
    TokenKey::of(&format!("fp_{}", "0a".repeat(32))).unwrap()
}

impl Pair {
    fn with(proof: &Proof, node: NodeProof<'_>, prepared: Option<[u8; 32]>) -> Pair {
        let (message, opener) = Opener::new(request(), proof, SHOWN, prepared).unwrap();
        let request = SealedRequest::read(&received(message, STREAM)).unwrap();
        Pair { sealer: Sealer::new(&request, prepared.as_ref(), node).unwrap(), opener }
    }

    fn new() -> Pair {
        let key = PrivateKey::random().unwrap();
        Pair::with(
            &Proof::NodeKey(key.public()),
            NodeProof { key: Some(&key), token: None, shown: SHOWN },
            None,
        )
    }

    fn open(&self, message: Message) -> Result<Message> {
        self.opener.check(&message)?;
        self.opener.open(message)
    }
}

#[test]
fn answers_of_any_size_come_out_as_they_went_in() {
    let (key, token) = (PrivateKey::random().unwrap(), Arc::new(token()));
    let node = NodeProof { key: Some(&key), token: Some(&token), shown: SHOWN };
    for proof in [Proof::NodeKey(key.public()), Proof::Token(token.clone())] {
        let pair = Pair::with(&proof, node, Some([7; 32]));
        for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 3_000_017] {
            let plain = received(parcel(bytes), STREAM);
            let sealed = pair.sealer.seal_alone(parcel(bytes)).unwrap();
            let message = received(sealed, STREAM);
            assert_eq!(message.body.len(), bytes + added_bytes(bytes));
            assert!(bytes < 16 || !message.body.windows(16).any(|part| part == &plain.body[..16]));
            let on_wire = message.bytes_on_wire;
            let opened = pair.open(message).unwrap();
            assert_eq!((opened.body, opened.kind, opened.bytes_on_wire), (plain.body, plain.kind, on_wire));
        }
        let end = pair.open(received(pair.sealer.seal_alone(receipt()).unwrap(), STREAM)).unwrap();
        let Response::Receipt(receipt) = Response::decode(&end, None).unwrap() else { panic!("{end:?}") };
        assert_eq!(receipt.rows_returned, 77);
    }
}

#[test]
fn the_largest_message_has_room_for_its_tags() {
    for kind in FrameKind::ALL.iter().filter(|kind| kind.is_from_node() && !kind.is_control()) {
        let most = kind.message_bytes_max();
        assert_eq!(kind.body_bytes_max(), most + added_bytes(most));
        assert!(blocks(most) < 1 << BLOCK_BITS);
    }
    const {
        assert!(ERROR_NUMBERS.checked_shl(BLOCK_BITS).is_some() && ERROR_NUMBERS.leading_zeros() > BLOCK_BITS)
    };
    assert!(limits::PLAN_BYTES_MAX + (64 << 10) + 200 < FrameKind::Sealed.message_bytes_max());
}

#[test]
fn threads_seal_at_once_and_answers_leave_in_order() {
    let pair = Pair::new();
    let (count, sent) = (3_000, parking_lot::Mutex::new(Vec::new()));
    let numbered: Vec<NumberedAnswer> =
        (0..count).map(|n| pair.sealer.seal(parcel(n % 300)).unwrap()).collect();
    // Delivers the sealed answers out of order, as threads that overtake one another do.
    let (late, early): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|it| it.number % 7 == 3);
    for numbered in early.into_iter().rev().chain(late) {
        pair.sealer.deliver(numbered, |message| sent.lock().push(message));
    }
    let sent = sent.into_inner();
    assert_eq!(sent.len(), count);
    for (place, message) in sent.into_iter().enumerate() {
        let opened = pair.open(received(message, STREAM)).unwrap();
        assert_eq!(opened.body, received(parcel(place % 300), STREAM).body);
    }
    // An answer that got a number and is never delivered blocks all later answers, so sealing the last answer fails.
    drop(pair.sealer.seal(parcel(1)).unwrap());
    assert_eq!(pair.sealer.seal_alone(receipt()).unwrap_err().kind, ErrorKind::Internal);
    // An error can be sent nevertheless, in place of all answers that were not sent.
    let opened =
        pair.open(received(pair.sealer.seal_error(error("division by 42")).unwrap(), STREAM)).unwrap();
    let Response::Error(said) = Response::decode(&opened, None).unwrap() else { panic!("{opened:?}") };
    assert_eq!(said.message, "division by 42");
}

#[test]
fn dropped_repeated_and_exchanged_answers_are_errors() {
    let pair = Pair::new();
    let seal = |message| received(pair.sealer.seal_alone(message).unwrap(), STREAM);
    let answers = [seal(parcel(10)), seal(parcel(20)), seal(parcel(30)), seal(receipt())];
    let pair = pair.opener;
    let fresh = |order: &[usize]| -> Result<()> {
        pair.next.store(0, std::sync::atomic::Ordering::Relaxed);
        for place in order {
            pair.check(&answers[*place])?;
            pair.open(answers[*place].clone())?;
        }
        Ok(())
    };
    fresh(&[0, 1, 2, 3]).unwrap();
    for order in [&[0, 1, 3][..], &[1], &[3], &[0, 0], &[0, 2, 1, 3], &[0, 1, 2, 2, 3]] {
        assert_eq!(fresh(order).unwrap_err().kind, ErrorKind::Corrupt, "{order:?}");
    }
    // An answer whose number was changed to that of another answer cannot be decrypted.
    let mut body = answers[1].body.to_vec();
    let at = body.len() - 8;
    body[at] = 0;
    assert!(pair.open(Message { body: body.into(), ..answers[1].clone() }).is_err());
}

#[test]
fn every_bit_of_an_answer_counts() {
    let pair = Pair::new();
    let error = pair.sealer.seal_error(error("wrong")).unwrap();
    let answers = [received(pair.sealer.seal_alone(parcel(50)).unwrap(), STREAM), received(error, STREAM)];
    for answer in answers {
        for at in 0..answer.body.len() * 8 {
            let mut body = answer.body.to_vec();
            body[at / 8] ^= 1 << (at % 8);
            let error = pair.opener.open(Message { body: body.into(), ..answer.clone() }).unwrap_err();
            // The changed ciphertext of an `Error` may happen to look like an unencrypted error, which is reported in
            // other words.
            let is_told = answer.kind == FrameKind::Error && error.message.contains("in the clear");
            assert!(error.kind == ErrorKind::Corrupt || is_told, "bit {at}: {error}");
        }
        for end in 0..answer.body.len() {
            let cut = Message { body: answer.body.slice(..end), ..answer.clone() };
            assert!(pair.opener.open(cut).is_err(), "cut at {end}");
        }
        for kind in [FrameKind::Batch, FrameKind::Receipt, FrameKind::Prepared] {
            assert!(pair.opener.open(Message { kind, ..answer.clone() }).is_err());
        }
        assert!(pair.opener.open(Message { stream: STREAM + 1, ..answer.clone() }).is_err());
        pair.opener.open(answer).unwrap();
    }
}

#[test]
fn blocks_of_one_message_keep_their_places() {
    let pair = Pair::new();
    let bytes = 3 * BLOCK_BYTES;
    let answer = received(pair.sealer.seal_alone(parcel(bytes)).unwrap(), STREAM);
    let mut exchanged = answer.body.to_vec();
    let (one, two) = exchanged[..2 * BLOCK_BYTES].split_at_mut(BLOCK_BYTES);
    one.swap_with_slice(two);
    let (one, two) = exchanged[bytes..bytes + 2 * TAG_BYTES].split_at_mut(TAG_BYTES);
    one.swap_with_slice(two);
    assert!(pair.opener.open(Message { body: exchanged.into(), ..answer.clone() }).is_err());
    // A message without its last block is refused.
    let tags = bytes..bytes + 2 * TAG_BYTES;
    let trailer = answer.body.len() - TRAILER_BYTES..;
    let shorter = [&answer.body[..2 * BLOCK_BYTES], &answer.body[tags], &answer.body[trailer]].concat();
    assert_eq!(shorter.len(), 2 * BLOCK_BYTES + added_bytes(2 * BLOCK_BYTES));
    assert!(pair.opener.open(Message { body: shorter.into(), ..answer.clone() }).is_err());
    pair.opener.open(answer).unwrap();
}

#[test]
fn another_node_token_request_or_program_has_other_keys() {
    let (key, other) = (PrivateKey::random().unwrap(), PrivateKey::random().unwrap());
    let (message, opener) =
        Opener::new(request(), &Proof::NodeKey(key.public()), SHOWN, Some([1; 32])).unwrap();
    let sealed = received(message, STREAM);
    let proof = NodeProof { key: Some(&key), token: None, shown: SHOWN };
    let answer = |sealed: &Message, prepared: &[u8; 32], proof| -> Result<Message> {
        let sealer = Sealer::new(&SealedRequest::read(sealed)?, Some(prepared), proof)?;
        Ok(received(sealer.seal_alone(parcel(9))?, STREAM))
    };
    opener.open(answer(&sealed, &[1; 32], proof).unwrap()).unwrap();
    let opener = |message: Message| {
        opener.context.lock().take();
        opener.open(message)
    };
    assert!(opener(answer(&sealed, &[2; 32], proof).unwrap()).is_err(), "another program");
    let refused =
        answer(&sealed, &[1; 32], NodeProof { key: Some(&other), token: None, shown: SHOWN }).unwrap_err();
    assert!(refused.kind == ErrorKind::Denied && refused.message.contains("wants another"), "{refused}");
    assert!(answer(&sealed, &[1; 32], NodeProof::default()).is_err());
    // A man in the middle, who knows everything but the node's private key, changes the sealed request.
    let forged = |change: &dyn Fn(&mut proto::Sealed)| {
        let mut inner: proto::Sealed = read(&sealed.body).unwrap();
        change(&mut inner);
        Message { body: body(&inner), ..sealed.clone() }
    };
    let own_id = |sealed: &mut proto::Sealed| sealed.proof_id = Bytes::copy_from_slice(&other.public().0);
    let answered =
        answer(&forged(&own_id), &[1; 32], NodeProof { key: Some(&other), token: None, shown: SHOWN })
            .unwrap();
    assert!(opener(answered).is_err(), "another node");
    // The right node takes the client for one with another token.
    let another = NodeProof { shown: [8; 32], ..proof };
    assert!(opener(answer(&sealed, &[1; 32], another).unwrap()).is_err(), "another token");
    // The right node received another request than the client has sent.
    let other_plan = |sealed: &mut proto::Sealed| sealed.request = Bytes::from(vec![1; 40]);
    assert!(opener(answer(&forged(&other_plan), &[1; 32], proof).unwrap()).is_err(), "another request");
}

#[test]
fn what_a_node_does_not_know_is_refused() {
    let (key, token) = (PrivateKey::random().unwrap(), token());
    let node = NodeProof { key: Some(&key), token: Some(&token), shown: SHOWN };
    let (message, _) = Opener::new(request(), &Proof::NodeKey(key.public()), SHOWN, None).unwrap();
    let sealed = received(message, STREAM);
    let with = |change: &dyn Fn(&mut proto::Sealed)| {
        let mut inner: proto::Sealed = read(&sealed.body).unwrap();
        change(&mut inner);
        let request = SealedRequest::read(&Message { body: body(&inner), ..sealed.clone() })?;
        Sealer::new(&request, None, node).map(drop)
    };
    with(&|_| {}).unwrap();
    let refused = [
        with(&|sealed| sealed.suite = 2).unwrap_err(),
        with(&|sealed| sealed.key = Bytes::from_static(b"short")).unwrap_err(),
        with(&|sealed| sealed.key = Bytes::from(vec![0; 32])).unwrap_err(),
        with(&|sealed| sealed.proof = 3).unwrap_err(),
        with(&|sealed| sealed.kind = FrameKind::LoadBegin.number().into()).unwrap_err(),
        with(&|sealed| sealed.kind = FrameKind::Sealed.number().into()).unwrap_err(),
        with(&|sealed| sealed.kind = 300).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    let denied = with(&|sealed| sealed.proof = 2).unwrap_err();
    assert!(denied.kind == ErrorKind::Denied && denied.message.contains("token"), "{denied}");
}

#[test]
fn only_tokens_that_nobody_can_guess_are_secrets() {
    let good = format!("fp_{}", "c3".repeat(32));
    let (one, two) = (TokenKey::of(&good).unwrap(), TokenKey::of(&good).unwrap());
    assert_eq!(one.id, two.id);
    assert_ne!(one.id, token().id);
    assert_eq!(format!("{one:?}"), "TokenKey");
    for token in
        ["", "secret", "fp_", &good[..66], &"c3".repeat(32), &format!("{good}0"), &good.replace('c', "x")]
    {
        let error = TokenKey::of(token).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(token.len() < 7 || !error.to_string().contains(token), "{error}");
    }
}

#[test]
fn a_refusal_in_the_clear_says_so() {
    let pair = Pair::new();
    let said = pair.opener.open(received(error("no such suite"), STREAM)).unwrap_err();
    assert!(said.message.contains("in the clear") && said.message.contains("no such suite"), "{said}");
    let rows = received(parcel(100_000), STREAM);
    assert_eq!(pair.opener.check(&rows).unwrap_err().kind, ErrorKind::Corrupt);
}

#[test]
fn requests_name_the_programs_that_they_run() {
    let key = PrivateKey::random().unwrap();
    let handle = |request: Request| {
        let plain = request.encode().unwrap().pop().unwrap();
        let (message, _) = Opener::new(plain, &Proof::NodeKey(key.public()), SHOWN, None).unwrap();
        let sealed = SealedRequest::read(&received(message, STREAM)).unwrap();
        assert_eq!(Request::decode(&sealed.request, None).unwrap().kind(), request.kind());
        sealed.handle().unwrap()
    };
    let results = Default::default();
    assert_eq!(handle(Request::ExecutePrepared { handle: 5, conditions: Some(vec![1]), results }), Some(5));
    let id = farpool_model::LoadId(3);
    assert_eq!(handle(Request::ChangeRows { handle: 9, rows: 1, id }), Some(9));
    assert_eq!(handle(Request::Execute { plan: vec![1], schema: None, results }), None);
    let name = TableName::new("t").unwrap();
    assert_eq!(handle(Request::Table { name, known: None, or_view: true }), None);
}
