use super::Value;

/// Pairs in the order in which they came. Keys are found by linear search: a message has a handful.
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

    /// The value of a key that is this string or this symbol. A null counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, v)| k.as_text() == Some(key) && !v.is_null()).map(|(_, v)| v)
    }

    /// Puts a value under a string key, in the place of what is there under that text.
    pub fn insert(&mut self, key: &str, value: impl Into<Value>) {
        self.put(key, Value::from(key), value.into());
    }

    /// Puts a value under a symbol key, in the place of what is there under that text.
    pub fn insert_symbol(&mut self, key: &str, value: impl Into<Value>) {
        self.put(key, Value::Symbol(key.to_owned()), value.into());
    }

    fn put(&mut self, text: &str, key: Value, value: Value) {
        match self.0.iter_mut().find(|(k, _)| k.as_text() == Some(text)) {
            Some(pair) => pair.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// Takes out what is under this text.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(k, _)| k.as_text() == Some(key))?;
        Some(self.0.remove(at).1)
    }

    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// With a value under a string key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.insert(key, value);
        self
    }

    /// With a value under a symbol key.
    #[must_use]
    pub fn with_symbol(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.insert_symbol(key, value);
        self
    }
}
