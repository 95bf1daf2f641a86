//! Tests of lanes (the queues of messages to be sent on the streams of one connection). The client's message assembler
//! decodes the frames.

use super::*;
use bytes::BytesMut;
use farpool_wire::{Assembler, FrameKind, Message, split_frame};

fn message(kind: FrameKind, bytes: usize, mark: u8) -> Outgoing {
    // The body has two pieces of memory, as most messages have (metadata and a column buffer).
    let body = Bytes::from(vec![mark; bytes]);
    let pieces = vec![body.slice(..bytes / 3), body.slice(bytes / 3..)];
    Outgoing::new(kind, pieces).unwrap()
}

fn lanes(streams: std::ops::Range<u32>) -> Lanes<u32> {
    let mut lanes = Lanes::new();
    streams.for_each(|stream| lanes.open(stream, 0, 0, stream).unwrap());
    lanes
}

/// Decodes the frames picked for one write; returns the stream, the kind, and whether the message continues, of each.
fn frames(picked: Picked) -> Vec<(u32, FrameKind, bool)> {
    let mut bytes: BytesMut = picked.segments.iter().flatten().copied().collect();
    let next = || split_frame(&mut bytes).unwrap();
    std::iter::from_fn(next).map(|(header, _)| (header.stream, header.kind, header.more)).collect()
}

/// Picks frames until none is ready, and assembles them to messages.
fn messages(lanes: &mut Lanes<u32>) -> Vec<Message> {
    let mut assembler = Assembler::new();
    let mut messages = Vec::new();
    loop {
        let picked = lanes.pick(1);
        if picked.segments.is_empty() {
            return messages;
        }
        let mut bytes: BytesMut = picked.segments.iter().flatten().copied().collect();
        while let Some((header, payload)) = split_frame(&mut bytes).unwrap() {
            messages.extend(assembler.push(header, payload).unwrap());
        }
        assert!(bytes.is_empty());
    }
}

#[test]
fn streams_take_turns_frame_by_frame() {
    let mut lanes = lanes(1..4);
    for stream in 1..4 {
        let bytes = if stream == 3 { 10 } else { 2 * limits::FRAME_BYTES_MAX };
        assert!(lanes.push(stream, message(FrameKind::Batch, bytes, 0)));
    }
    let batch = |stream, more| (stream, FrameKind::Batch, more);
    let expected = [batch(1, true), batch(2, true), batch(3, false), batch(1, false), batch(2, false)];
    assert_eq!(frames(lanes.pick(usize::MAX)), expected);
    assert!(lanes.pick(usize::MAX).segments.is_empty());
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let mut lanes = lanes(1..5);
    let sizes =
        [0, 1, 5, limits::FRAME_BYTES_MAX, limits::FRAME_BYTES_MAX + 1, 3 * limits::FRAME_BYTES_MAX - 7];
    for (index, bytes) in sizes.into_iter().enumerate() {
        for stream in 1..5 {
            let bytes = if stream % 2 == 0 { bytes } else { bytes / 2 };
            lanes.push(stream, message(FrameKind::TableList, bytes, index as u8));
        }
    }
    let arrived = messages(&mut lanes);
    for stream in 1..5 {
        let of_stream: Vec<_> = arrived.iter().filter(|m| m.stream == stream).collect();
        assert_eq!(of_stream.len(), sizes.len());
        for (index, (message, bytes)) in of_stream.iter().zip(sizes).enumerate() {
            assert_eq!(message.body.len(), if stream % 2 == 0 { bytes } else { bytes / 2 });
            assert!(message.body.iter().all(|&mark| usize::from(mark) == index));
        }
        let total: u64 = of_stream.iter().map(|m| m.bytes_on_wire).sum();
        assert_eq!(lanes.bytes_total(stream), total);
    }
}

#[test]
fn batches_wait_for_credit_and_other_messages_do_not() {
    let mut lanes = lanes(1..3);
    for _ in 0..20 {
        lanes.push(1, message(FrameKind::Batch, 1 << 20, 0));
    }
    lanes.push(2, message(FrameKind::TableList, 64, 0));
    // Four batches of 1 MiB with their headers are more than the window of 4 MiB, so sending stops after the fourth.
    let window = |arrived: Vec<Message>| arrived.iter().filter(|m| m.stream == 1).count();
    assert_eq!(window(messages(&mut lanes)), 4);
    lanes.grant(1, 1).unwrap();
    assert_eq!(window(messages(&mut lanes)), 0, "the window is still overdrawn by the headers");
    lanes.grant(1, 2 << 20).unwrap();
    assert_eq!(window(messages(&mut lanes)), 2);
    assert!(lanes.grant(1, u64::MAX).is_err());
    assert!(lanes.grant(77, 5).is_ok());
}

#[test]
fn a_stream_whose_client_must_read_first_has_room_for_one_more() {
    let mut lanes = lanes(1..2);
    lanes.push(1, message(FrameKind::Batch, limits::STREAM_WINDOW_BYTES, 0));
    while !lanes.pick(usize::MAX).segments.is_empty() {}
    assert!(lanes.has_room(1), "nothing is queued");
    lanes.push(1, message(FrameKind::Batch, 10, 0));
    assert!(!lanes.has_room(1));
    assert!(lanes.grant(1, 1 << 20).unwrap(), "says that there is room");
    assert!(lanes.has_room(1));
    assert!(!lanes.grant(1, 1 << 20).unwrap(), "says it once");
}

#[test]
fn a_crowded_connection_lets_each_stream_move() {
    let mut lanes = lanes(1..20);
    for stream in 1..11 {
        lanes.push(stream, message(FrameKind::Batch, 2 << 20, 0));
    }
    assert!((1..11).all(|stream| !lanes.has_room(stream)));
    assert!((11..20).all(|stream| lanes.has_room(stream)), "nothing is queued for these");
    let mut rooms = 0;
    while !(1..11).any(|stream| lanes.has_room(stream)) {
        rooms += usize::from(lanes.pick(1).room);
    }
    assert!(rooms >= 1, "those that wait are told");
}

#[test]
fn a_full_stream_says_when_it_has_room() {
    let mut lanes = lanes(1..2);
    for _ in 0..limits::QUEUED_BATCHES_MAX {
        assert!(lanes.has_room(1));
        lanes.push(1, message(FrameKind::Batch, 10, 0));
    }
    assert!(!lanes.has_room(1));
    assert!(lanes.pick(1).room);
    assert!(lanes.has_room(1));
    assert!(!lanes.pick(1).room);
    lanes.push(1, message(FrameKind::TableList, limits::STREAM_WINDOW_BYTES + 1, 0));
    assert!(!lanes.has_room(1));
    lanes.remove(1);
    assert!(lanes.has_room(1), "so that the program may find out");
}

#[test]
fn a_stream_closes_with_its_last_message() {
    let mut lanes = lanes(1..3);
    lanes.push(1, message(FrameKind::Batch, 10, 0));
    lanes.end(1, message(FrameKind::Receipt, 10, 1));
    assert!(lanes.work(1).is_none());
    assert!(!lanes.push(1, message(FrameKind::Batch, 10, 2)), "nothing comes after the end");
    assert!(lanes.open(1, 0, 0, 1).is_err());
    assert_eq!(messages(&mut lanes).len(), 2);
    assert_eq!(lanes.len(), 1);
    lanes.open(1, 0, 0, 1).unwrap();
}

#[test]
fn a_removed_stream_leaves_no_frames() {
    let mut lanes = lanes(1..3);
    lanes.push(1, message(FrameKind::Batch, 2 << 20, 0));
    lanes.push(2, message(FrameKind::Batch, 10, 0));
    assert_eq!(frames(lanes.pick(1)).len(), 1);
    assert_eq!(lanes.remove(1), Some(1));
    // The stream id is reused at once. No message of the old stream may be sent on the new one.
    lanes.open(1, 0, 0, 1).unwrap();
    lanes.end(1, message(FrameKind::StatusInfo, 5, 0));
    let kinds: Vec<_> = messages(&mut lanes).iter().map(|m| (m.stream, m.kind)).collect();
    assert_eq!(kinds.len(), 2);
    assert!(kinds.contains(&(1, FrameKind::StatusInfo)) && kinds.contains(&(2, FrameKind::Batch)));
}

#[test]
fn streams_are_limited() {
    let most = u32::try_from(limits::STREAMS_PER_CONNECTION_MAX).unwrap();
    let mut lanes = lanes(1..most + 1);
    assert!(lanes.open(most + 1, 0, 0, 0).is_err());
    assert_eq!(lanes.drain().len(), limits::STREAMS_PER_CONNECTION_MAX);
    lanes.open(1, 0, 0, 0).unwrap();
}

#[test]
fn a_stream_that_does_not_move_is_found_and_can_be_given_up_in_the_middle_of_a_message() {
    let mut lanes = lanes(1..4);
    lanes.push(1, message(FrameKind::Batch, 3 * limits::FRAME_BYTES_MAX, 1));
    lanes.push(2, message(FrameKind::Batch, 10, 2));
    assert_eq!(frames(lanes.pick(1)), [(1, FrameKind::Batch, true)]);
    (0..5).for_each(|_| lanes.tick());
    let stalled: Vec<u32> = lanes.stalled(5).iter().map(|stalled| stalled.stream).collect();
    assert_eq!(stalled, [1, 2], "nothing waits on stream 3");
    assert!(lanes.stalled(6).is_empty());
    // Stream 2 continues; on stream 1 an error replaces the rest.
    assert_eq!(frames(lanes.pick(1)), [(2, FrameKind::Batch, false)]);
    lanes.push(2, message(FrameKind::Batch, 10, 2));
    assert_eq!(lanes.stalled(1).len(), 1);
    assert_eq!(lanes.give_up(1, message(FrameKind::Error, 20, 3)), Some(1));
    assert!(lanes.give_up(1, message(FrameKind::Error, 20, 3)).is_none());
    assert!(lanes.work(1).is_none());
    assert!(!lanes.push(1, message(FrameKind::Batch, 10, 1)), "nothing comes after the error");
    let mut left = frames(lanes.pick(usize::MAX));
    left.sort_by_key(|(stream, ..)| *stream);
    assert_eq!(left, [(1, FrameKind::Error, false), (2, FrameKind::Batch, false)]);
    assert_eq!((lanes.len(), lanes.bytes_queued()), (2, 0));
}

#[test]
fn a_stream_whose_end_is_not_read_can_be_given_up() {
    let mut lanes = lanes(1..2);
    for _ in 0..6 {
        lanes.push(1, message(FrameKind::Batch, 1 << 20, 1));
    }
    lanes.end(1, message(FrameKind::Receipt, 10, 1));
    while !lanes.pick(usize::MAX).segments.is_empty() {}
    lanes.tick();
    assert_eq!(lanes.stalled(1).len(), 1, "the last rows wait for credit");
    assert_eq!(lanes.give_up(1, message(FrameKind::Error, 20, 3)), Some(1));
    assert_eq!(frames(lanes.pick(usize::MAX)), [(1, FrameKind::Error, false)]);
    assert_eq!(lanes.len(), 0);
}
