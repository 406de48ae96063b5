//! Replays a stream without sockets: for the fuzz targets and for the test that replays their corpus.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;
use redrive_amqp091::{ContentHeader, channel};
use redrive_core::Bytes;
use redrive_core::transport::Origin;

use super::channels::{OwnChannel, OwnChannels};
use super::confirms::{Answer, Written};
use super::deliveries::{Got, TakenDelivery};
use super::delivery_queue::DeliveryQueue;
use super::frame::{END, HEAD, METHOD};
use super::reader::{FrameReader, Greeting};
use super::writer::{FrameWriter, PROTOCOL_HEADER};
use crate::convert::{self, Form};

/// Number of messages that wait for a confirm.
const UNCONFIRMED: usize = 4;
/// The library reads this many bytes at a time.
const READ: usize = 100;
/// The channel of redrive's own frames that are written.
const OWN: u8 = 2;

/// Reads what a broker says. Channels 1 and 2 are consumed from, messages were written on channel 3, the library has all others. The
/// first byte says in how many pieces the rest comes, and as many bytes tell their sizes, again and again.
///
/// # Panics
/// If it matters how the stream is cut, or a message that was taken cannot be written and read again.
pub fn replay_read(input: &[u8]) {
    let Some((&pieces, rest)) = input.split_first() else { return };
    let Some((pieces, stream)) = rest.split_at_checked(usize::from(pieces)) else { return };
    let sizes: Vec<_> = pieces.iter().map(|&size| usize::from(size).pow(2).max(1)).collect();
    let mut whole = Connection::new();
    whole.says(stream);
    let mut cut = Connection::new();
    let (mut rest, mut sizes) = (stream, sizes.iter().cycle());
    while !rest.is_empty() && !cut.failed {
        let piece = rest.split_off(..rest.len().min(*sizes.next().unwrap_or(&usize::MAX)));
        cut.says(piece.unwrap_or_default());
    }
    assert_eq!(whole.failed, cut.failed);
    assert!(whole.passed_on == cut.passed_on, "the library reads the same");
    let taken = whole.taken();
    assert_eq!(format!("{taken:?}"), format!("{:?}", cut.taken()));
    assert_eq!(format!("{:?}", whole.got()), format!("{:?}", cut.got()));
    assert_eq!(format!("{:?}", whole.answers()), format!("{:?}", cut.answers()));
    taken.iter().for_each(written_and_read_again);
}

/// The service's end of a connection.
struct Connection {
    reader: FrameReader,
    consumers: [DeliveryQueue; 2],
    confirms: std::sync::Arc<super::confirms::Confirms>,
    passed_on: Vec<u8>,
    began: Instant,
    failed: bool,
}

impl Connection {
    fn new() -> Self {
        let channels = OwnChannels::default();
        let consumers =
            [1, 2].map(|number| DeliveryQueue::new(channels.register(number), Origin::new("orders", "", "")));
        let confirms = channels.register(3).take_confirms();
        let written =
            |at: usize| Written { header: Bytes::from(vec![0; 14]), body: Bytes::from(vec![0; at]) };
        confirms.begin((0..UNCONFIRMED).map(written).collect());
        let reader = FrameReader::new(131_072, Greeting::default(), channels);
        Self { reader, consumers, confirms, passed_on: Vec::new(), began: Instant::now(), failed: false }
    }

    fn says(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.failed {
            let room = self.reader.room();
            let read = bytes.split_off(..room.len().min(bytes.len())).unwrap_or_default();
            room[..read.len()].copy_from_slice(read);
            self.reader.take_in(read.len());
            self.go_on();
            while !self.failed && !self.reader.readable().is_empty() {
                let length = self.reader.readable().len().min(READ);
                self.passed_on.extend(&self.reader.readable()[..length]);
                self.reader.handed_on(length);
                self.go_on();
            }
        }
    }

    fn go_on(&mut self) {
        // Time stands still: a heartbeat depends on it.
        self.failed |= self.reader.go_on(self.began).is_err();
    }

    fn taken(&self) -> Vec<TakenDelivery> {
        self.consumers.iter().flat_map(|consumer| consumer.take(usize::MAX)).collect()
    }

    fn got(&self) -> Vec<Option<Got>> {
        self.consumers.iter().flat_map(DeliveryQueue::answers).collect()
    }

    fn answers(&self) -> Option<lapin::Result<Vec<Answer>>> {
        futures::FutureExt::now_or_never(self.confirms.answers())
    }
}

fn written_and_read_again(taken: &TakenDelivery) {
    let (message, _) = convert::read(&taken.header, taken.body.clone());
    let copy = |message| {
        let copy = convert::for_publishing(message, "guest", Form::Copy);
        let properties = convert::properties(&copy, Form::Copy).ok()?;
        let mut written = BytesMut::new();
        ContentHeader { body_size: taken.body.len() as u64, properties }.write(&mut written);
        Some(written.freeze())
    };
    // What no frame can carry is refused: a text of more than 255 bytes.
    let Some(written) = copy(message) else { return };
    let (again, left_out) = convert::read(&written, taken.body.clone());
    assert_eq!(left_out, None);
    assert_eq!(copy(again), Some(written));
}

/// Writes what the input says: each instruction is two bytes, one that says who writes or how much the socket takes, and a size.
///
/// # Panics
/// If a frame is cut by another, a side does not keep its order, or something follows the end of its channel.
pub fn replay_write(input: &[u8]) {
    let channels = OwnChannels::default();
    let own: OwnChannel = channels.register(OWN.into());
    let mut writer = FrameWriter::new(channels);
    let (mut by_library, mut by_us) = (b"AMQP\0\0\x09\x01".to_vec(), Vec::new());
    let (mut begun, mut out) = (0, Vec::new());
    let mut before_the_end = None;
    for (number, instruction) in (0_u8..=255).cycle().zip(input.chunks_exact(2)) {
        let size = usize::from(instruction[1]) * 40;
        match instruction[0] % 5 {
            0 => by_library.extend(frame(1, &vec![number; size])),
            1 => {
                let added = by_library.len().min(begun + size);
                writer.add(&by_library[begun..added]);
                begun = added;
            }
            2 => {
                let frames = [frame(OWN, &vec![number; size]), frame(OWN, &[number])];
                by_us.push(frames.concat());
                drop(own.write(VecDeque::from(frames.map(Bytes::from))));
            }
            3 if before_the_end.is_none() => {
                by_library.extend(frame(OWN, &channel::Close::ID));
                before_the_end = Some(by_us.len());
            }
            _ => takes(&mut writer, size, &mut out),
        }
    }
    writer.add(&by_library[begun..]);
    takes(&mut writer, usize::MAX, &mut out);
    let (library, ours) = sides(&out);
    assert!(library == by_library);
    // What was written before the end goes before it, and the rest as far as the end was not seen yet.
    assert!(before_the_end.is_none_or(|before| ours.len() >= before) && by_us.starts_with(&ours));
    assert!(before_the_end.is_some() || ours.len() == by_us.len());
}

fn frame(channel: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&[METHOD, 0, channel][..], &length, payload, &[redrive_amqp091::FRAME_END]].concat()
}

/// The socket takes so many bytes.
fn takes(writer: &mut FrameWriter, mut most: usize, out: &mut Vec<u8>) {
    loop {
        let next = writer.next();
        let length = next.len().min(most);
        if length == 0 {
            return;
        }
        out.extend(&next[..length]);
        most -= length;
        writer.written(length);
    }
}

/// Returns what the library wrote, and each pair of our own frames, which nothing may come between.
fn sides(mut out: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut library = out.split_off(..PROTOCOL_HEADER).expect("the protocol header").to_vec();
    let (mut ours, mut is_over) = (Vec::new(), false);
    while let Some(frame) = next_frame(&mut out) {
        let payload = &frame[HEAD..frame.len() - END];
        if frame[2] != OWN || payload == channel::Close::ID {
            is_over |= frame[2] == OWN;
            library.extend(frame);
            continue;
        }
        assert!(!is_over, "a frame behind the end of its channel");
        let second = next_frame(&mut out).expect("a second frame");
        assert_eq!(second[2], OWN);
        ours.push([frame, second].concat());
    }
    assert!(out.is_empty());
    (library, ours)
}

fn next_frame<'a>(out: &mut &'a [u8]) -> Option<&'a [u8]> {
    let &[_, _, _, a, b, c, d] = out.first_chunk::<HEAD>()?;
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    Some(out.split_off(..HEAD + size + END).expect("whole frames"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// The inputs whose file names begin so.
    fn corpus(target: &str, begin: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin)));
        files.sort();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    #[test]
    fn the_corpus_is_read_and_written() {
        corpus("read", "").iter().for_each(|input| replay_read(input));
        corpus("write", "").iter().for_each(|input| replay_write(input));
    }

    proptest! {
        #[test]
        fn what_a_broker_says_is_read_however_it_is_damaged_and_cut(
            file: Index, pieces in proptest::collection::vec(1..60_u8, 0..8), end: Index,
            changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..5),
        ) {
            let corpus = corpus("read", "rabbitmq");
            let recorded = file.get(&corpus);
            let mut stream = recorded[1 + usize::from(recorded[0])..].to_vec();
            for (at, to) in changes {
                *at.get_mut(&mut stream) = to;
            }
            stream.truncate(stream.len() / 2 + end.index(stream.len()));
            let number = u8::try_from(pieces.len()).unwrap();
            replay_read(&[&[number][..], &pieces, &stream].concat());
        }

        #[test]
        fn whoever_writes_no_frame_is_cut(input in proptest::collection::vec(any::<u8>(), 0..400)) {
            replay_write(&input);
        }
    }
}
