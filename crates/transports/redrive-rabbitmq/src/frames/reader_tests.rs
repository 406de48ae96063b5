use super::*;
use crate::frames::delivery_queue::DeliveryQueue;
use proptest::prelude::*;
use redrive_core::Bytes;
use redrive_core::transport::Origin;

fn frame(frame_type: u8, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[frame_type, 0, 1], &size[..], payload, &[0xce]].concat()
}

/// Creates a content header with a message id that is not UTF-8.
fn header(message_id: &[u8]) -> Vec<u8> {
    let length = u8::try_from(message_id.len()).unwrap();
    let payload = [&[0; 12][..], &(1_u16 << 7).to_be_bytes(), &[length], message_id].concat();
    frame(HEADER, &payload)
}

/// Returns the output for a stream that arrives in pieces of these sizes.
fn through(stream: &[u8], pieces: &[usize]) -> Vec<u8> {
    passed_on(&mut FrameReader::new(0, Greeting::default(), OwnChannels::default()), stream, pieces)
}

fn passed_on(reader: &mut FrameReader, stream: &[u8], pieces: &[usize]) -> Vec<u8> {
    let (mut rest, mut out) = (stream, Vec::new());
    for size in pieces.iter().cycle() {
        let read = rest.len().min(*size).min(reader.room().len());
        reader.room()[..read].copy_from_slice(&rest[..read]);
        rest = &rest[read..];
        reader.take_in(read);
        reader.go_on(Instant::now()).unwrap();
        while !reader.readable().is_empty() {
            let length = reader.readable().len().min(100);
            out.extend(&reader.readable()[..length]);
            reader.handed_on(length);
            reader.go_on(Instant::now()).unwrap();
        }
        if rest.is_empty() {
            return out;
        }
    }
    out
}

/// Frames of a message, its body in frames of this length.
fn delivery(channel: u16, tag: u64, body: &[u8], each: usize) -> Vec<Vec<u8>> {
    let method = [&[0, 60, 0, 60, 1, b'c'][..], &tag.to_be_bytes(), &[1, 1, b'e', 2, b'r', b'k']].concat();
    let size = u64::try_from(body.len()).unwrap().to_be_bytes();
    let header = [&[0, 60, 0, 0][..], &size, &[0, 0]].concat();
    let parts = body.chunks(each).map(|part| frame(BODY, part));
    let mut frames: Vec<_> =
        [frame(METHOD, &method), frame(HEADER, &header)].into_iter().chain(parts).collect();
    frames.iter_mut().for_each(|frame| frame[1..3].copy_from_slice(&channel.to_be_bytes()));
    frames
}

fn taken_by(consumer: &DeliveryQueue) -> Vec<(u64, usize)> {
    consumer.take(usize::MAX).map(|taken| (taken.tag, taken.body.len())).collect()
}

proptest! {
    #[test]
    fn however_it_is_cut_each_frame_is_made_readable(
        pieces in proptest::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..8), body in 0..20_000_usize,
    ) {
        let stream = |id: &[u8]| [
            frame(METHOD, &[0, 60, 0, 80]), header(id), frame(BODY, &vec![0xfc; body]), frame(HEARTBEAT, b""),
            header(id),
        ].concat();
        prop_assert_eq!(through(&stream(b"Gr\xfc\xdfe"), &pieces), stream(b"Gr??e"));
    }

    /// Two channels are taken, one is not, and their frames come in any order.
    #[test]
    fn deliveries_are_taken_and_all_else_is_passed_on(
        messages in proptest::collection::vec((1..4_u16, 0..3000_usize, 1..2000_usize), 1..12),
        mut order in proptest::collection::vec(0..3_usize, 60),
        pieces in proptest::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..8),
    ) {
        let deliveries = OwnChannels::default();
        let consumers = [DeliveryQueue::new(deliveries.register(1), Origin::new("orders", "", "")), DeliveryQueue::new(deliveries.register(2), Origin::new("orders", "", ""))];
        let mut channels = [const { std::collections::VecDeque::new() }; 3];
        let mut expected = [const { Vec::new() }; 3];
        for (tag, (channel, body, each)) in (1..).zip(messages) {
            let at = usize::from(channel - 1);
            channels[at].extend(delivery(channel, tag, &vec![0xce; body], each));
            expected[at].push((tag, body));
        }
        let (mut stream, mut library) = (Vec::<u8>::new(), Vec::<u8>::new());
        order.extend([0, 1, 2]);
        for at in order.into_iter().cycle() {
            if channels.iter().all(std::collections::VecDeque::is_empty) {
                break;
            }
            // What is not taken comes between the frames of what is.
            let Some(frame) = channels[at].pop_front() else { continue };
            stream.extend(&frame);
            if at == 2 {
                library.extend(&frame);
            }
        }
        let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
        prop_assert_eq!(passed_on(&mut reader, &stream, &pieces), library);
        prop_assert_eq!(taken_by(&consumers[0]), std::mem::take(&mut expected[0]));
        prop_assert_eq!(taken_by(&consumers[1]), std::mem::take(&mut expected[1]));
    }

    #[test]
    fn what_is_no_amqp_is_handed_on_as_it_is(
        text in proptest::collection::vec(9..=255_u8, 1..1000), pieces in proptest::collection::vec(1..300_usize, 1..8),
    ) {
        prop_assume!(text.len() >= HEAD);
        prop_assert_eq!(through(&text, &pieces), text);
    }
}

/// The library would take a connection for dead on which only deliveries come.
#[test]
fn the_library_hears_that_the_connection_lives() {
    let deliveries = OwnChannels::default();
    let consumer = DeliveryQueue::new(deliveries.register(1), Origin::new("orders", "", ""));
    let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
    let began = Instant::now();
    let mut comes = |after: Duration| {
        let stream = delivery(1, 1, b"body", 4).concat();
        reader.room()[..stream.len()].copy_from_slice(&stream);
        reader.take_in(stream.len());
        reader.go_on(began + after).unwrap();
        let mut heard = Vec::<u8>::new();
        while !reader.readable().is_empty() {
            let length = reader.readable().len().min(5);
            heard.extend(&reader.readable()[..length]);
            reader.handed_on(length);
            reader.go_on(began + after).unwrap();
        }
        heard
    };
    assert_eq!(comes(Duration::ZERO), b"");
    assert_eq!(comes(SIGN_OF_LIFE / 2), b"");
    assert_eq!(comes(SIGN_OF_LIFE), redrive_amqp091::HEARTBEAT);
    assert_eq!(comes(SIGN_OF_LIFE), b"");
    assert_eq!(comes(2 * SIGN_OF_LIFE), redrive_amqp091::HEARTBEAT);
    assert_eq!(taken_by(&consumer).len(), 5);
}

#[test]
fn answers_to_basic_get_are_taken_behind_the_deliveries_before_them() {
    // `basic.get-ok` has no consumer tag, and ends with the number of messages behind this one.
    let got = |tag, behind: u32| {
        let mut frames = delivery(1, tag, b"body", 3);
        let method = [
            &[0, 60, 0, 71][..],
            &u64::to_be_bytes(tag),
            &[0, 1, b'e', 2, b'r', b'k'],
            &behind.to_be_bytes(),
        ];
        frames[0] = frame(METHOD, &method.concat());
        frames.concat()
    };
    let empty = frame(METHOD, &[0, 60, 0, 72, 0]);
    let mut of_the_library = empty.clone();
    of_the_library[2] = 3;
    let stream =
        [&delivery(1, 1, b"before", 2).concat()[..], &got(2, 7), &of_the_library, &empty, &got(3, 0)]
            .concat();
    for pieces in [&[100_000][..], &[1], &[7, 50]] {
        let channels = OwnChannels::default();
        let consumer = DeliveryQueue::new(channels.register(1), Origin::new("orders", "", ""));
        let mut reader = FrameReader::new(0, Greeting::default(), channels);
        assert_eq!(passed_on(&mut reader, &stream, pieces), of_the_library);
        assert_eq!(taken_by(&consumer), [(1, 6)]);
        let answers = consumer.answers().into_iter();
        let shown = answers.map(|got| got.map(|(taken, behind)| (taken.tag, taken.body.len(), behind)));
        assert_eq!(shown.collect::<Vec<_>>(), [Some((2, 4, 7)), None, Some((3, 4, 0))]);
    }
}

/// In one piece or byte by byte.
#[test]
fn a_body_that_is_none_ends_the_stream_and_is_no_delivery() {
    let whole = || delivery(1, 1, b"body", 4).concat();
    let longer = delivery(1, 1, b"body and more", 100).concat();
    let longer = [&whole()[..whole().len() - 12], &longer[longer.len() - 21..]].concat();
    let mut open = whole();
    *open.last_mut().unwrap() = 0;
    for stream in [longer, open] {
        for piece in [1, stream.len()] {
            let deliveries = OwnChannels::default();
            let consumer = DeliveryQueue::new(deliveries.register(1), Origin::new("orders", "", ""));
            let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
            let read = stream.chunks(piece).try_for_each(|piece| {
                reader.room()[..piece.len()].copy_from_slice(piece);
                reader.take_in(piece.len());
                reader.go_on(Instant::now())
            });
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(taken_by(&consumer), []);
        }
    }
}

#[test]
fn a_channel_that_ended_is_taken_no_more() {
    let deliveries = OwnChannels::default();
    let consumer = DeliveryQueue::new(deliveries.register(1), Origin::new("orders", "", ""));
    let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
    let whole = delivery(1, 1, b"body", 4).concat();
    let close = frame(METHOD, &[0, 20, 0, 40, 1, 148, 0, 0, 0, 0, 0]);
    // In the middle of a second one, which never gets its body.
    let stream = [&whole[..], &delivery(1, 2, b"body", 4)[..2].concat(), &close, &whole].concat();
    assert_eq!(passed_on(&mut reader, &stream, &[7]), [&close[..], &whole].concat());
    assert_eq!(taken_by(&consumer), [(1, 4)]);
}

/// The frames of a message that comes back, with this id.
fn comes_back(channel: u16, id: &[u8]) -> Vec<u8> {
    let method = frame(METHOD, b"\0\x3c\0\x32\x01\x38\x08NO_ROUTE\0\x06orders");
    let mut frames = [method, header(id)];
    frames.iter_mut().for_each(|frame| frame[1..3].copy_from_slice(&channel.to_be_bytes()));
    frames.concat()
}

fn confirm(channel: u16, method: u8, tag: u64, bits: u8) -> Vec<u8> {
    let mut confirm = frame(METHOD, &[&[0, 60, 0, method][..], &tag.to_be_bytes(), &[bits]].concat());
    confirm[1..3].copy_from_slice(&channel.to_be_bytes());
    confirm
}

#[test]
fn confirms_are_taken_and_what_comes_back_is_known() {
    const ACK: u8 = 80;
    const NACK: u8 = 120;
    let written = |id: &[u8]| crate::frames::Written {
        header: Bytes::copy_from_slice(&header(id)[HEAD..header(id).len() - END]),
        body: Bytes::new(),
    };
    for pieces in [&[100_000][..], &[1], &[7, 50]] {
        let channels = OwnChannels::default();
        let copies = crate::frames::CopyChannel::new(channels.register(2));
        let ids: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let answers = copies.publish(ids.map(written).to_vec(), std::collections::VecDeque::new());
        let stream = [
            // Of a channel of the library.
            confirm(1, ACK, 1, 0),
            comes_back(1, b"a"),
            comes_back(2, b"b"),
            confirm(2, NACK, 1, 0),
            confirm(2, ACK, 3, 1),
            frame(HEARTBEAT, b""),
            confirm(2, ACK, 4, 0),
        ];
        let library = [&*stream[0], &stream[1], &stream[5]].concat();
        let mut reader = FrameReader::new(0, Greeting::default(), channels);
        assert_eq!(passed_on(&mut reader, &stream.concat(), pieces), library);
        let answers = futures::FutureExt::now_or_never(answers).expect("all are there").expect("no error");
        let returned = crate::frames::Answer::Returned("NO_ROUTE".to_owned());
        use crate::frames::Answer::{Refused, Stored};
        assert_eq!(answers, [Refused, returned, Stored, Stored]);
    }
}

/// Creates the broker's proposal.
fn tune(frame_max: u32) -> Vec<u8> {
    frame(METHOD, &[&[0, 10, 0, 30, 7, 255][..], &frame_max.to_be_bytes(), &[0, 60]].concat())
}

/// Creates a content header with one header of this many bytes.
fn with_header(bytes: usize) -> Vec<u8> {
    let long = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let headers = [&b"\x04fillS"[..], &long(&vec![b'x'; bytes])].concat();
    frame(HEADER, &[&[0, 60][..], &[0; 10], &(1_u16 << 13).to_be_bytes(), &long(&headers)].concat())
}

#[test]
fn a_header_that_is_too_long_for_the_library_is_shortened_and_all_else_stays() {
    const LONGEST: usize = 10_000;
    const AROUND: usize = 8 + 14 + 4 + 10;
    let stream = |bytes| [tune(10_000), with_header(bytes), frame(BODY, b"body"), header(b"next")].concat();
    for pieces in [&[100_000][..], &[1], &[7000, 5, 1]] {
        let fits = stream(LONGEST - AROUND);
        assert_eq!(through(&fits, pieces), fits);
        let (too_long, out) = (stream(LONGEST - AROUND + 1), through(&stream(LONGEST - AROUND + 1), pieces));
        let (before, after) = (tune(10_000), [frame(BODY, b"body"), header(b"next")].concat());
        assert!(out.len() < too_long.len() && out.starts_with(&before) && out.ends_with(&after));
        let shortened = &out[before.len()..out.len() - after.len()];
        let size = u32::from_be_bytes(*shortened[3..].first_chunk().unwrap()) as usize;
        assert_eq!((shortened.len(), shortened.last()), (HEAD + size + END, Some(&0xce)));
        let text = String::from_utf8_lossy(shortened);
        assert!(text.contains(left_out_mark()) && text.contains("`fill` (9975 bytes)"), "{text}");
    }
}

#[test]
fn no_header_is_too_long_to_be_shortened_and_none_keeps_its_memory() {
    let mut reader = FrameReader::new(0, Greeting::default(), OwnChannels::default());
    let stream = [tune(10_000), with_header(20 << 20), header(b"next")].concat();
    let mut out = Vec::new();
    for piece in stream.chunks(READ / 2) {
        reader.room()[..piece.len()].copy_from_slice(piece);
        reader.take_in(piece.len());
        reader.go_on(Instant::now()).unwrap();
        out.extend(reader.readable());
        reader.start = reader.ready;
    }
    assert!(out.len() < 20_000 && out.ends_with(&header(b"next")), "{} bytes", out.len());
    reader.room();
    assert_eq!(reader.buffer.capacity(), READ);
}

#[test]
fn the_smaller_frame_is_agreed_on() {
    for (wanted, proposed, longest) in
        [(0, 131_072, 131_072), (8192, 131_072, 8192), (9000, 0, 9000), (1, 131_072, 4096)]
    {
        assert_eq!(agreed(wanted, proposed), longest);
    }
    assert_eq!(agreed(0, 0), u32::MAX as usize);
}

#[test]
fn a_long_header_arrives_whole() {
    let long = frame(
        HEADER,
        &[&[0; 12][..], &(1_u16 << 13).to_be_bytes(), &(0_u32.to_be_bytes()), &vec![7; 130_000]].concat(),
    );
    assert_eq!(through(&long, &[1000]), long);
}

/// `channel.close`, with this reply code.
fn channel_close(code: u16) -> Vec<u8> {
    let text = b"NOT_FOUND - no queue";
    let length = u8::try_from(text.len()).unwrap();
    frame(METHOD, &[&[0, 20, 0, 40][..], &code.to_be_bytes(), &[length], text, &[0; 4]].concat())
}

#[test]
fn the_library_is_not_told_why_a_channel_for_questions_is_closed() {
    let channels = OwnChannels::default();
    let mut reader = FrameReader::new(0, Greeting::default(), channels.clone());
    let reason = channels.ask_on(1);
    assert!(reason.error().is_none());
    assert_eq!(passed_on(&mut reader, &channel_close(404), &[5]), channel_close(200));
    let error = reason.error().expect("the reason");
    assert_eq!(crate::error::refusal(&error), Some((404, "NOT_FOUND - no queue".to_owned())));
    // A later channel of this number is another one.
    assert_eq!(passed_on(&mut reader, &channel_close(404), &[5]), channel_close(404));
}

#[test]
fn a_channel_ends_with_the_connection_that_the_library_closes() {
    let channels = OwnChannels::default();
    let mut reader = FrameReader::new(0, Greeting::default(), channels.clone());
    let closed = frame(METHOD, &[0, 20, 0, 41]);
    assert_eq!(passed_on(&mut reader, &closed, &[5]), closed);
    channels.library_closes();
    let rest = frame(METHOD, &[0, 10, 0, 51]);
    let stream = [closed, channel_close(404), rest.clone()].concat();
    assert_eq!(passed_on(&mut reader, &stream, &[5]), rest);
}
