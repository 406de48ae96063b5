//! Patterns of a topic exchange as a trie of words: `*` is one word, `#` any number of words.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct TopicTrie {
    words: HashMap<Box<[u8]>, TopicTrie>,
    numbers: Vec<u64>,
}

impl TopicTrie {
    pub(super) fn insert(&mut self, pattern: &[u8], number: u64) {
        let mut node = self;
        for word in words(pattern) {
            node = node.words.entry(word.into()).or_default();
        }
        node.numbers.push(number);
    }

    pub(super) fn remove(&mut self, pattern: &[u8], number: u64) {
        self.remove_words(&words(pattern).collect::<Vec<_>>(), number);
    }

    fn remove_words(&mut self, pattern: &[&[u8]], number: u64) {
        let Some((first, rest)) = pattern.split_first() else {
            self.numbers.retain(|other| *other != number);
            return;
        };
        if let Some(node) = self.words.get_mut(*first) {
            node.remove_words(rest, number);
            if node.words.is_empty() && node.numbers.is_empty() {
                self.words.remove(*first);
            }
        }
    }

    /// Calls `found` for each matching pattern; the same one may come twice. Follows all patterns at once, word by word: the cost is at
    /// most words times nodes, whatever the patterns.
    pub(super) fn route(&self, key: &[u8], found: &mut impl FnMut(&u64)) {
        let mut reached = Vec::new();
        self.enter(false, &mut reached);
        for word in words(key) {
            let mut next = Vec::new();
            for State { node, any } in reached {
                if any {
                    next.push(State { node, any });
                }
                if let Some(one) = node.words.get(&b"*"[..]) {
                    one.enter(false, &mut next);
                }
                // A word of the key that looks like a wildcard is a plain word, and no pattern has one.
                if word != b"#"
                    && word != b"*"
                    && let Some(same) = node.words.get(word)
                {
                    same.enter(false, &mut next);
                }
            }
            next.sort_unstable_by_key(State::order);
            next.dedup_by_key(|state| state.order());
            reached = next;
        }
        for state in reached {
            state.node.numbers.iter().for_each(&mut *found);
        }
    }

    /// Reaches this node, and the nodes that are reached without a further word.
    fn enter<'a>(&'a self, any: bool, reached: &mut Vec<State<'a>>) {
        reached.push(State { node: self, any });
        if let Some(hash) = self.words.get(&b"#"[..]) {
            hash.enter(true, reached);
        }
    }
}

/// A node that the words so far lead to. `any`: its own word is `#`, so that it may take further words.
struct State<'a> {
    node: &'a TopicTrie,
    any: bool,
}

impl State<'_> {
    fn order(&self) -> (usize, bool) {
        (std::ptr::from_ref(self.node).addr(), self.any)
    }
}

/// Splits at the dots; the empty key has no words.
fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|byte| *byte == b'.').filter(move |_| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, key: &str) -> bool {
        let mut trie = TopicTrie::default();
        trie.insert(pattern.as_bytes(), 1);
        let mut found = false;
        trie.route(key.as_bytes(), &mut |_| found = true);
        found
    }

    #[test]
    fn a_star_is_one_word_and_a_hash_any_number() {
        for (pattern, key) in [
            ("a.b", "a.b"),
            ("a.*", "a.b"),
            ("#", ""),
            ("#", "a.b.c"),
            ("a.#", "a"),
            ("a.#", "a.b.c"),
            ("#.c", "a.b.c"),
            ("a.#.c", "a.c"),
            ("*.#.*", "a.b"),
            ("", ""),
            ("a.*.c", "a..c"),
            ("#.#.#.#.#.#.#.#.#.#.#.#.#", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z"),
        ] {
            assert!(matches(pattern, key), "{pattern} matches {key}");
        }
        for (pattern, key) in [
            ("a.b", "a"),
            ("a.*", "a"),
            ("a.*", "a.b.c"),
            ("*", ""),
            ("a.#.c", "a.b"),
            ("", "a"),
            ("*.#.*", "a"),
        ] {
            assert!(!matches(pattern, key), "{pattern} does not match {key}");
        }
    }

    #[test]
    fn nothing_is_left_of_a_removed_pattern() {
        let mut trie = TopicTrie::default();
        trie.insert(b"a.*.#", 1);
        trie.insert(b"a.*.#", 2);
        trie.remove(b"a.*.#", 1);
        let mut found = Vec::new();
        trie.route(b"a.b", &mut |number| found.push(*number));
        assert_eq!(found, [2]);
        trie.remove(b"a.*.#", 2);
        assert!(trie.words.is_empty());
    }
}
