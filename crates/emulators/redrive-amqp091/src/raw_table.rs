use bytes::{Bytes, BytesMut};

use crate::value::write_entry;
use crate::wire::Reader;
use crate::{DecodeError, ShortStr, Table, Value};

/// An encoded field table, already checked: it is decoded only where somebody asks. Cheap to clone; shares the received bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RawTable(Bytes);

impl RawTable {
    /// Checks an encoded table, without its length.
    ///
    /// # Errors
    /// If it is none.
    pub fn checked(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(&bytes);
        while from.remaining() > 0 {
            let length = from.u8()?;
            from.skip(usize::from(length))?;
            Value::skip(&mut from, Table::MAX_DEPTH - 1)?;
        }
        Ok(Self(bytes))
    }

    /// Returns the encoded entries.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes it.
    #[must_use]
    pub fn decode(&self) -> Table {
        // It was checked.
        Table::read_entries(&self.0, Table::MAX_DEPTH - 1).unwrap_or_default()
    }

    /// Returns the first value of this key, and decodes no other.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        let mut from = Reader::new(&self.0);
        while from.remaining() > 0 {
            let length = from.u8().ok()?;
            if from.peek(usize::from(length)).ok()? == key.as_bytes() {
                return Value::read(&mut from, Table::MAX_DEPTH - 1).ok();
            }
            Value::skip(&mut from, Table::MAX_DEPTH - 1).ok()?;
        }
        None
    }

    /// Returns whether there is an entry with this key.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.encoded_entries().any(|(name, _)| name == key.as_bytes())
    }

    /// Returns the entries in order, still encoded, each behind its key.
    pub fn encoded_entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut from = Reader::new(&self.0);
        std::iter::from_fn(move || {
            let at = from.position();
            let length = from.u8().ok()?;
            let key = from.peek(usize::from(length)).ok()?;
            Value::skip(&mut from, Table::MAX_DEPTH - 1).ok()?;
            Some((key, &self.0[at..from.position()]))
        })
    }

    /// Returns the entries in order, each decoded when it is reached.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        Entries(Reader::new(&self.0))
    }

    /// Copies the bytes out of the buffer that they share, so that this value does not keep a large buffer alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

/// The entries of a [`RawTable`].
pub struct Entries<'a>(Reader<'a>);

impl std::fmt::Debug for Entries<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("remaining_bytes", &self.0.remaining()).finish()
    }
}

impl Iterator for Entries<'_> {
    type Item = (ShortStr, Value);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.remaining() == 0 {
            return None;
        }
        let key = self.0.short_str().ok()?;
        let value = Value::read(&mut self.0, Table::MAX_DEPTH - 1).ok()?;
        Some((key, value))
    }
}

impl Table {
    /// Encodes it, without its length.
    #[must_use]
    pub fn encode(&self) -> RawTable {
        let mut out = BytesMut::new();
        self.write_entries(&mut out);
        RawTable(out.freeze())
    }
}

/// Encodes the entries one by one, without a [`Table`] in between.
impl FromIterator<(ShortStr, Value)> for RawTable {
    fn from_iter<I: IntoIterator<Item = (ShortStr, Value)>>(entries: I) -> Self {
        let mut out = BytesMut::new();
        for (key, value) in entries {
            write_entry(&key, &value, &mut out);
        }
        Self(out.freeze())
    }
}

impl From<&Table> for RawTable {
    fn from(table: &Table) -> Self {
        table.encode()
    }
}

impl From<Table> for RawTable {
    fn from(table: Table) -> Self {
        table.encode()
    }
}
