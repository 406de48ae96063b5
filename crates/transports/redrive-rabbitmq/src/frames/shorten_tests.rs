use lapin::types::parsing::parse_field_table;
use proptest::prelude::*;

use super::super::frame::{HEADER, make_readable};
use super::*;

const NAME: &str = "left-out";
/// Class, weight and size of the body.
const BEGIN: [u8; 12] = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn text(name: &str, length: usize) -> Vec<u8> {
    [&short(name.as_bytes()), &b"S"[..], &long(&vec![b'x'; length])].concat()
}

/// Creates a content header with a content type, these headers, and a message id.
fn header(headers: &[Vec<u8>]) -> Vec<u8> {
    let flags = (1_u16 << 15) | (1 << 13) | (1 << 7);
    [&BEGIN[..], &flags.to_be_bytes(), &short(b"text/plain"), &long(&headers.concat()), &short(b"id-1")]
        .concat()
}

/// Returns the names of the headers, read as the library does.
fn names(payload: &[u8]) -> Vec<String> {
    let (_, table) = parse_field_table::<&[u8]>(&payload[14 + 11..]).unwrap();
    table.inner().keys().map(ToString::to_string).collect()
}

#[test]
fn what_tells_the_story_is_kept_before_all_else() {
    let headers =
        [text("a", 900), text("redrive-attempt", 400), text("b", 3000), text("x-death", 800), text("c", 10)];
    let payload = header(&headers);
    let shortened = shorten(&payload, 4000, NAME).unwrap();
    assert_eq!(names(&shortened.payload), ["a", "c", "left-out", "redrive-attempt", "x-death"]);
    assert_eq!(shortened.left_out, "headers that do not fit a frame: `b` (3007 bytes)");
    assert!(shortened.payload.ends_with(&short(b"id-1")));
    assert!(shortened.payload.starts_with(&header(&[])[..14 + 11]));
    let shortened = shorten(&payload, 1500, NAME).unwrap();
    assert_eq!(names(&shortened.payload), ["c", "left-out", "redrive-attempt"], "the others are longer");
}

#[test]
fn of_many_a_few_are_named() {
    let headers: Vec<_> = (0..9).map(|n| text(&format!("{n}{}", "n".repeat(250)), 4000)).collect();
    let shortened = shorten(&header(&headers), 4096, NAME).unwrap();
    assert_eq!(names(&shortened.payload), ["left-out"]);
    assert!(shortened.left_out.ends_with("n` (4257 bytes), and 6 more"), "{}", shortened.left_out);
}

#[test]
fn properties_alone_are_never_too_large_and_stay() {
    let payload = [&BEGIN[..], &(1_u16 << 7).to_be_bytes(), &short(&[b'i'; 255])].concat();
    assert!(shorten(&payload, 100, NAME).is_none());
}

proptest! {
    #[test]
    fn it_fits_and_the_library_reads_it(
        sizes in proptest::collection::vec(0..3000_usize, 0..40), most in 4096..20_000_usize,
    ) {
        let headers: Vec<_> = sizes.iter().enumerate().map(|(n, size)| text(&n.to_string(), *size)).collect();
        let shortened = shorten(&header(&headers), most, NAME).unwrap();
        prop_assert!(shortened.payload.len() <= most);
        prop_assert!(names(&shortened.payload).contains(&NAME.to_owned()));
        let mut again = shortened.payload.to_vec();
        prop_assert!(!make_readable(HEADER, &mut again).anything());
    }

    #[test]
    fn no_frame_makes_it_panic(mut payload in proptest::collection::vec(any::<u8>(), 0..300), most in 0..6000_usize) {
        payload.splice(0..payload.len().min(12), BEGIN);
        shorten(&payload, most, NAME);
    }
}
