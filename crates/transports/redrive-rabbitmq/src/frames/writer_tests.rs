use futures::FutureExt as _;
use proptest::prelude::*;

use std::collections::VecDeque;

use super::*;

fn frame(channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[METHOD][..], &channel.to_be_bytes(), &size, payload, &[0xce]].concat()
}

fn own_pieces(frames: &[Vec<u8>]) -> VecDeque<Bytes> {
    frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect()
}

/// Writes what waits, so many bytes at a time.
fn written(writer: &mut FrameWriter, each: &mut impl Iterator<Item = usize>, out: &mut Vec<u8>) {
    loop {
        let next = writer.next();
        let length = next.len().min(each.next().unwrap_or(usize::MAX));
        if length == 0 {
            return;
        }
        out.extend(&next[..length]);
        writer.written(length);
    }
}

/// Splits into frames after the protocol header.
fn split(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut frames = vec![stream.split_off(..PROTOCOL_HEADER).unwrap()];
    while let Some(head) = stream.first_chunk::<HEAD>() {
        let size = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize;
        frames.push(stream.split_off(..HEAD + size + END).expect("whole frames"));
    }
    assert!(stream.is_empty());
    frames
}

proptest! {
    /// The library's bytes come in any pieces, redrive's own frames at any time, and the socket takes any number of bytes.
    #[test]
    fn frames_are_never_cut_and_each_side_keeps_its_order(
        library in proptest::collection::vec(0..3000_usize, 1..12), own in proptest::collection::vec((0..3000_usize, 1..4_usize), 1..12),
        pieces in proptest::collection::vec(1..2000_usize, 1..40), takes in proptest::collection::vec(1..2000_usize, 1..40),
    ) {
        let channels = OwnChannels::default();
        let copies = channels.register(2);
        let library: Vec<_> = (0_u8..).zip(library).map(|(at, size)| frame(1, &vec![at; size])).collect();
        let own: Vec<_> = (0_u8..).zip(own).map(|(at, (size, frames))| vec![frame(2, &vec![at; size]); frames]).collect();
        let from_library = [b"AMQP\0\0\x09\x01", &*library.concat()].concat();
        let (mut rest, mut units) = (&*from_library, own.iter());
        let (mut writer, mut out) = (FrameWriter::new(channels.clone()), Vec::new());
        let mut takes = takes.into_iter().cycle();
        for piece in pieces.iter().cycle() {
            let piece = rest.len().min(*piece);
            writer.add(&rest[..piece]);
            rest = &rest[piece..];
            let next = units.next();
            next.inspect(|frames| drop(copies.write(own_pieces(frames))));
            written(&mut writer, &mut takes, &mut out);
            if rest.is_empty() && next.is_none() {
                break;
            }
        }
        let frames = split(&out);
        let of = |channel: u16| frames.iter().skip(1).filter(move |frame| frame[1..3] == channel.to_be_bytes());
        prop_assert_eq!(frames[0], b"AMQP\0\0\x09\x01");
        prop_assert!(of(1).eq(library.iter()));
        prop_assert!(of(2).eq(own.iter().flatten()));
        // A unit is written without a frame of the library in it.
        let mut channels = frames.iter().skip(1).map(|frame| frame[2]);
        for frames in &own {
            let begun = channels.by_ref().find(|channel| *channel == 2);
            prop_assert_eq!(begun, Some(2));
            prop_assert!(channels.by_ref().take(frames.len() - 1).all(|channel| channel == 2));
        }
    }
}

/// Both always have something to write.
#[test]
fn neither_side_waits_for_ever() {
    let channels = OwnChannels::default();
    let copies = channels.register(2);
    let mut writer = FrameWriter::new(channels.clone());
    writer.add(b"AMQP\0\0\x09\x01");
    let mut order = String::new();
    for _ in 0..7 {
        writer.add(&frame(1, b""));
        drop(copies.write(own_pieces(&[frame(2, b"")])));
        let next = writer.next();
        order.push(if next.starts_with(b"AMQP") { 'h' } else { char::from(b'0' + next[2]) });
        let length = next.len();
        writer.written(length);
    }
    assert_eq!(order, "h121212");
}

/// Begins a unit of two frames on channel 2, in the middle of whose first frame the library writes this; another unit waits.
fn ended_by(end: &[u8]) -> (Vec<Vec<u8>>, [bool; 2]) {
    let channels = OwnChannels::default();
    let copies = channels.register(2);
    let mut writer = FrameWriter::new(channels.clone());
    let mut out = Vec::new();
    writer.add(b"AMQP\0\0\x09\x01");
    let begun = copies.write(own_pieces(&[frame(2, b"first"), frame(2, b"second")]));
    written(&mut writer, &mut [8, 10, 0].into_iter(), &mut out);
    // One byte too few to be known.
    writer.add(&end[..METHOD_SEEN - 1]);
    let waits = copies.write(own_pieces(&[frame(2, b"third")]));
    written(&mut writer, &mut [3, 0].into_iter(), &mut out);
    writer.add(&end[METHOD_SEEN - 1..]);
    let mut all = std::iter::repeat(usize::MAX);
    written(&mut writer, &mut all, &mut out);
    let late = copies.write(own_pieces(&[frame(2, b"late")]));
    if end[..3] != frame(0, b"")[..3] {
        written(&mut writer, &mut all, &mut out);
        assert!(late.now_or_never().expect("known").is_err());
    }
    let is_written = |writing: Option<lapin::Result<()>>| writing.expect("known").is_ok();
    (
        split(&out).into_iter().skip(1).map(<[u8]>::to_vec).collect(),
        [is_written(begun.now_or_never()), is_written(waits.now_or_never())],
    )
}

#[test]
fn what_waits_is_written_before_the_library_ends_its_channel_or_the_connection() {
    for end in [frame(2, &channel::Close::ID), frame(0, &connection::Close::ID)] {
        let (frames, is_written) = ended_by(&end);
        assert_eq!(frames, [frame(2, b"first"), frame(2, b"second"), frame(2, b"third"), end]);
        assert_eq!(is_written, [true, true]);
    }
}

/// The broker has ended the channel, and the library answers.
#[test]
fn nothing_is_written_after_the_answer_to_the_end_of_a_channel() {
    let end = frame(2, &channel::CloseOk::ID);
    let (frames, is_written) = ended_by(&end);
    // The library's turn comes after a unit.
    assert_eq!(frames, [frame(2, b"first"), frame(2, b"second"), end]);
    assert_eq!(is_written, [true, false]);
}
