use bytes::Bytes;
use uuid::Uuid;

/// One AMQP value with its type, so that a client's value leaves with the type that it came with.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// true or false
    Bool(bool),
    /// 8 bits, unsigned
    Ubyte(u8),
    /// 16 bits, unsigned
    Ushort(u16),
    /// 32 bits, unsigned
    Uint(u32),
    /// 64 bits, unsigned
    Ulong(u64),
    /// 8 bits, signed
    Byte(i8),
    /// 16 bits, signed
    Short(i16),
    /// 32 bits, signed
    Int(i32),
    /// 64 bits, signed
    Long(i64),
    /// IEEE 754, 32 bits
    Float(f32),
    /// IEEE 754, 64 bits
    Double(f64),
    /// IEEE 754 decimal, kept as received: nothing here computes with it.
    Decimal32([u8; 4]),
    /// IEEE 754 decimal, kept as received.
    Decimal64([u8; 8]),
    /// IEEE 754 decimal, kept as received.
    Decimal128([u8; 16]),
    /// One Unicode character.
    Char(char),
    /// Milliseconds since 1970, UTC.
    Timestamp(i64),
    /// In the order of RFC 4122.
    Uuid(Uuid),
    /// Bytes.
    Binary(Bytes),
    /// Text.
    String(String),
    /// A name from a fixed set. ASCII by the specification; any UTF-8 is accepted.
    Symbol(String),
    /// Values of any type.
    List(Vec<Value>),
    /// Pairs, in the order in which they arrived.
    Map(Map),
    /// Values of one type.
    Array(Vec<Value>),
    /// A descriptor, and the value that it describes.
    Described(Box<(Value, Value)>),
}

impl Value {
    /// A described value.
    pub fn described(descriptor: Value, value: Value) -> Self {
        Self::Described(Box::new((descriptor, value)))
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The text of a string or a symbol.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a binary.
    pub fn as_binary(&self) -> Option<&Bytes> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number, whatever its integer type is, or a timestamp's milliseconds; `None` when it does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        Some(match self {
            Self::Ubyte(n) => i64::from(*n),
            Self::Ushort(n) => i64::from(*n),
            Self::Uint(n) => i64::from(*n),
            Self::Ulong(n) => i64::try_from(*n).ok()?,
            Self::Byte(n) => i64::from(*n),
            Self::Short(n) => i64::from(*n),
            Self::Int(n) => i64::from(*n),
            Self::Long(n) | Self::Timestamp(n) => *n,
            _ => return None,
        })
    }

    /// The number, when it is an integer that fits.
    pub fn as_u32(&self) -> Option<u32> {
        self.as_i64().and_then(|n| n.try_into().ok())
    }

    /// true or false, when it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(yes) => Some(*yes),
            _ => None,
        }
    }

    /// The uuid, when it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// The map, when it is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The elements of a list or an array; SDKs differ in which of them they send.
    pub fn as_items(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) | Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! from {
    ($($variant:ident($type:ty)),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}
from!(
    Bool(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Char(char),
    Uuid(Uuid),
    Binary(Bytes),
    Map(Map)
);

/// Pairs in the order in which they arrived. Keys are found by linear search: a message has few.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map(pub Vec<(Value, Value)>);

impl Map {
    /// No pairs.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the value of this key, a string or a symbol. A null counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, v)| k.as_text() == Some(key) && !v.is_null()).map(|(_, v)| v)
    }

    /// Sets the value of a string key. Replaces the value of a key with the same text.
    pub fn insert(&mut self, key: &str, value: impl Into<Value>) {
        self.put(key, Value::from(key), value.into());
    }

    /// Sets the value of a symbol key. Replaces the value of a key with the same text.
    pub fn insert_symbol(&mut self, key: &str, value: impl Into<Value>) {
        self.put(key, Value::Symbol(key.to_owned()), value.into());
    }

    fn put(&mut self, text: &str, key: Value, value: Value) {
        match self.0.iter_mut().find(|(k, _)| k.as_text() == Some(text)) {
            Some(pair) => pair.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// Removes the value of this key.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(k, _)| k.as_text() == Some(key))?;
        Some(self.0.remove(at).1)
    }

    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// Adds a value with a string key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.insert(key, value);
        self
    }

    /// Adds a value with a symbol key.
    #[must_use]
    pub fn with_symbol(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.insert_symbol(key, value);
        self
    }
}
