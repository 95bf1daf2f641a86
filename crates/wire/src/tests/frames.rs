//! Tests that streams of frames which are truncated, interleaved or too large are rejected.

use super::*;

proptest! {
    #[test]
    fn messages_are_cut_into_frames_and_put_together_again(
        pieces in proptest::collection::vec(0usize..400_000, 0..6),
    ) {
        let pieces: Vec<Bytes> = (0u8..).zip(&pieces).map(|(i, n)| Bytes::from(vec![i; *n])).collect();
        let whole = pieces.concat();
        let message = Outgoing::new(FrameKind::Batch, pieces).unwrap();
        let messages = receive(&send(vec![message.clone()], 3)).unwrap();
        prop_assert_eq!(messages.len(), 1);
        prop_assert_eq!(&messages[0].body[..], &whole[..]);
        prop_assert_eq!(messages[0].bytes_on_wire, message.bytes_on_wire());
    }

    #[test]
    fn any_header_is_read_back_or_refused(bytes in any::<[u8; 12]>()) {
        if let Ok(header) = FrameHeader::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
        }
    }
}

fn header(kind: FrameKind, stream: u32, length: u32, more: bool) -> FrameHeader {
    FrameHeader { length, kind, more, stream }
}

#[test]
fn damaged_headers_say_what_is_wrong() {
    let good = header(FrameKind::Batch, 1, 10, true).encode();
    for (at, byte, what) in [
        (4, 99, "kind 99"),
        (3, 0xff, "payload may have"),
        (5, 0x83, "reserved bits"),
        (6, 1, "reserved bits"),
        (7, 1, "reserved bits"),
    ] {
        let mut bytes = good;
        bytes[at] = byte;
        let error = FrameHeader::decode(&bytes).unwrap_err();
        assert!(error.message.contains(what), "{error}");
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }
    assert!(FrameHeader::decode(&header(FrameKind::Cancel, 1, 0, true).encode()).is_err());
    assert!(FrameHeader::decode(&header(FrameKind::Batch, 1, 0, true).encode()).is_err());
    let error = FrameHeader::decode(&header(FrameKind::Ping, 3, 0, false).encode()).unwrap_err();
    assert!(error.message.contains("Ping belongs on stream 0, not 3"), "{error}");
}

#[test]
fn streams_alternate_and_control_frames_come_between() {
    let mut assembler = Assembler::new();
    let mut push = |kind, stream, bytes: &'static [u8], more| {
        assembler.push(header(kind, stream, bytes.len() as u32, more), Bytes::from_static(bytes)).unwrap()
    };
    assert!(push(FrameKind::LoadBatch, 1, b"ab", true).is_none());
    assert!(push(FrameKind::LoadBatch, 2, b"xy", true).is_none());
    assert_eq!(push(FrameKind::Cancel, 1, b"", false).unwrap().kind, FrameKind::Cancel);
    assert_eq!(push(FrameKind::LoadBatch, 1, b"cd", false).unwrap().body, "abcd");
    assert_eq!(push(FrameKind::LoadBatch, 2, b"", false).unwrap().body, "xy");
    assert_eq!(assembler.incomplete_bytes(), 0);
}

#[test]
fn a_message_must_end_before_the_next_begins() {
    let mut assembler = Assembler::new();
    assembler.push(header(FrameKind::LoadBatch, 1, 1, true), Bytes::from_static(b"a")).unwrap();
    let error = assembler.push(header(FrameKind::LoadEnd, 1, 0, false), Bytes::new()).unwrap_err();
    assert!(error.message.contains("LoadEnd begins before LoadBatch has ended"), "{error}");
    assembler.forget(1);
    assert_eq!(assembler.incomplete_bytes(), 0);
    assert!(assembler.push(header(FrameKind::LoadEnd, 1, 0, false), Bytes::new()).unwrap().is_some());
    let error = assembler.push(header(FrameKind::LoadEnd, 1, 5, false), Bytes::new()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
}

#[test]
fn what_a_peer_can_make_us_hold_is_bounded() {
    // A message larger than the maximum for its kind is refused before it is complete.
    let frame = Bytes::from(vec![0; limits::FRAME_BYTES_MAX]);
    let mut assembler = Assembler::new();
    let mut push = |kind, stream| {
        assembler.push(header(kind, stream, limits::FRAME_BYTES_MAX as u32, true), frame.clone())
    };
    let mut pushed = 0;
    let error = loop {
        match push(FrameKind::Execute, 1) {
            Ok(_) => pushed += limits::FRAME_BYTES_MAX,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(pushed <= FrameKind::Execute.message_bytes_max());
    // A peer that begins messages on many streams and completes none is refused.
    let mut assembler = Assembler::new();
    let error = (0..).find_map(|stream| {
        assembler.push(header(FrameKind::LoadBatch, stream, 1, true), Bytes::from_static(b"a")).err()
    });
    assert_eq!(error.unwrap().kind, ErrorKind::OverLimit);
    assert!(assembler.incomplete_bytes() <= limits::STREAMS_PER_CONNECTION_MAX);
    assert!(Outgoing::new(FrameKind::Cancel, vec![Bytes::from(vec![0; 65])]).is_err());
}

#[test]
fn a_sender_stops_when_its_credit_is_used_up() {
    let (mut window, mut grants) = (Window::new(), Grants::new());
    let batch = 3 << 20;
    let mut sent = 0;
    while window.is_open() {
        window.sent(batch);
        sent += 1;
    }
    assert_eq!(sent, 2, "the second batch may overdraw the window of 4 MiB");
    let credit = grants.taken(batch).expect("more than half a window");
    window.granted(credit).unwrap();
    assert!(window.is_open());
    assert_eq!(grants.taken(10), None);
    assert!(window.granted(u64::MAX).is_err());
    // A batch larger than the whole window may be sent if the credit is above zero, and closes the window.
    let mut window = Window::new();
    window.sent(200 << 20);
    assert!(!window.is_open());
    window.granted(200 << 20).unwrap();
    assert!(window.is_open());
}

#[test]
fn versions_are_negotiated() {
    assert_eq!(negotiate(1, 9).unwrap(), VERSION_MAX);
    assert_eq!(negotiate(0, 1).unwrap(), 1);
    assert!(negotiate(2, 9).is_err());
    assert!(negotiate(9, 1).is_err());
}
