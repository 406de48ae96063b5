//! A position in a trace, as messages carry it.

use std::fmt;

/// A position in a trace: the `traceparent` of [W3C Trace Context](https://www.w3.org/TR/trace-context/#traceparent-header).
///
/// ```
/// use redrive_core::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent = TraceParent::parse(text).unwrap();
/// assert_eq!((parent.span_id(), parent.flags()), (0xb7ad_6b71_6920_3331, 1));
/// assert_eq!(parent.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

impl TraceParent {
    /// Creates the position. `None` if an id is 0: such an id is not valid.
    #[must_use]
    pub fn new(trace_id: u128, span_id: u64, flags: u8) -> Option<Self> {
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, flags })
    }

    /// Reads a `traceparent`, also one of a later version of the standard. `None` if it is not valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |digits| parts.next().filter(|part: &&str| part.len() == digits && is_hex(part));
        let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        Self::new(
            u128::from_str_radix(trace_id, 16).ok()?,
            u64::from_str_radix(span_id, 16).ok()?,
            u8::from_str_radix(flags, 16).ok()?,
        )
    }

    /// Returns the id of the trace; not 0.
    #[must_use]
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// Returns the id of the span; not 0.
    #[must_use]
    pub fn span_id(self) -> u64 {
        self.span_id
    }

    /// Returns the flags. Bit 0: the trace is recorded.
    #[must_use]
    pub fn flags(self) -> u8 {
        self.flags
    }
}

/// Returns true for lower-case hex digits: the standard allows no upper case.
fn is_hex(part: &str) -> bool {
    part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Version 00 of the standard.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, flags } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[test]
    fn only_a_valid_traceparent_is_read() {
        assert_eq!(TraceParent::parse(VALID).map(|parent| parent.to_string()).as_deref(), Some(VALID));
        for invalid in [
            "",
            "00",
            &VALID[1..],
            &VALID.to_uppercase(),
            &VALID.replace("b7ad6b7169203331", "0000000000000000"),
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &VALID.replacen("00-", "ff-", 1),
            &format!("{VALID}-more"),
            &VALID.replace("0af7", "+af7"),
            &VALID.replace("0af7", "äf7"),
        ] {
            assert_eq!(TraceParent::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = format!("{}-more", VALID.replacen("00-", "cc-", 1));
        assert_eq!(TraceParent::parse(&later), TraceParent::parse(VALID));
    }
}
