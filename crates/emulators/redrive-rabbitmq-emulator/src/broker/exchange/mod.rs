//! Exchanges: which bindings a message matches.

mod headers;
mod topic;

use std::collections::HashMap;

use redrive_amqp091::{ShortStr, Table};

use self::headers::matches_headers;
use self::topic::TopicTrie;
use super::QueueId;

/// How an exchange chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
}

impl ExchangeKind {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "direct" => Some(Self::Direct),
            "fanout" => Some(Self::Fanout),
            "topic" => Some(Self::Topic),
            "headers" => Some(Self::Headers),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
        }
    }
}

/// Where a binding leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Destination {
    Queue(QueueId),
    Exchange(ShortStr),
}

/// A binding of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binding {
    pub(crate) destination: Destination,
    pub(crate) key: ShortStr,
    pub(crate) arguments: Table,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) name: ShortStr,
    pub(crate) kind: ExchangeKind,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    pub(crate) arguments: Table,
    /// From the argument, or from a policy.
    pub(crate) alternate: Option<ShortStr>,
    pub(crate) policy: Option<String>,
    /// In the order in which they were made. By number, so that an index can refer to one.
    bindings: HashMap<u64, Binding>,
    next: u64,
    /// The numbers by routing key: finds a binding, and routes for `direct`.
    by_key: HashMap<ShortStr, Vec<u64>>,
    /// The numbers by destination: finds all bindings of a queue that is deleted.
    by_destination: HashMap<Destination, Vec<u64>>,
    trie: TopicTrie,
}

impl Exchange {
    pub(crate) fn new(name: ShortStr, kind: ExchangeKind) -> Self {
        Self {
            name,
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: Table::new(),
            alternate: None,
            policy: None,
            bindings: HashMap::new(),
            next: 0,
            by_key: HashMap::new(),
            by_destination: HashMap::new(),
            trie: TopicTrie::default(),
        }
    }

    /// Adds a binding; returns false if it exists.
    pub(crate) fn bind(&mut self, binding: Binding) -> bool {
        if self.find(&binding).is_some() {
            return false;
        }
        let number = self.next;
        self.next += 1;
        self.by_key.entry(binding.key.clone()).or_default().push(number);
        self.by_destination.entry(binding.destination.clone()).or_default().push(number);
        if self.kind == ExchangeKind::Topic {
            self.trie.insert(binding.key.as_bytes(), number);
        }
        self.bindings.insert(number, binding);
        true
    }

    /// Removes a binding; returns false if there is none like it.
    pub(crate) fn unbind(&mut self, binding: &Binding) -> bool {
        match self.find(binding) {
            Some(number) => {
                self.remove(number);
                true
            }
            None => false,
        }
    }

    /// Removes all bindings of a destination, and returns them.
    pub(crate) fn unbind_all(&mut self, destination: &Destination) -> Vec<Binding> {
        let numbers = self.by_destination.get(destination).cloned().unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub(crate) fn is_bound(&self) -> bool {
        !self.bindings.is_empty()
    }

    /// Returns the bindings in the order in which they were made.
    pub(crate) fn bindings(&self) -> Vec<&Binding> {
        let mut numbered: Vec<_> = self.bindings.iter().collect();
        numbered.sort_by_key(|(number, _)| **number);
        numbered.into_iter().map(|(_, binding)| binding).collect()
    }

    /// Calls `found` for each matching binding's destination; the same one may come twice.
    pub(crate) fn route(&self, key: &ShortStr, headers: &Table, mut found: impl FnMut(&Destination)) {
        let mut emit = |number: &u64| {
            if let Some(binding) = self.bindings.get(number) {
                found(&binding.destination);
            }
        };
        match self.kind {
            ExchangeKind::Direct => self.by_key.get(key.as_bytes()).into_iter().flatten().for_each(emit),
            ExchangeKind::Topic => self.trie.route(key.as_bytes(), &mut emit),
            ExchangeKind::Fanout => self.by_destination.keys().for_each(found),
            ExchangeKind::Headers => {
                for binding in self.bindings.values() {
                    if matches_headers(&binding.arguments, headers) {
                        found(&binding.destination);
                    }
                }
            }
        }
    }

    fn find(&self, wanted: &Binding) -> Option<u64> {
        let numbers = self.by_key.get(wanted.key.as_bytes())?;
        numbers.iter().copied().find(|number| self.bindings.get(number) == Some(wanted))
    }

    fn remove(&mut self, number: u64) -> Option<Binding> {
        let binding = self.bindings.remove(&number)?;
        forget(&mut self.by_key, &binding.key, number);
        forget(&mut self.by_destination, &binding.destination, number);
        if self.kind == ExchangeKind::Topic {
            self.trie.remove(binding.key.as_bytes(), number);
        }
        Some(binding)
    }
}

fn forget<K: std::hash::Hash + Eq>(index: &mut HashMap<K, Vec<u64>>, key: &K, number: u64) {
    if let Some(numbers) = index.get_mut(key) {
        numbers.retain(|other| *other != number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}
