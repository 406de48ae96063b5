//! `LIKE`: `%` matches any text, `_` matches one character.

/// Takes time at most proportional to the product of both lengths: after a mismatch only the last `%` is tried again, one character
/// further.
pub(super) fn is_like(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern = parts(pattern, escape);
    let (mut at, mut part) = (0, 0);
    let mut last_any = None;
    while at < text.len() {
        match pattern.get(part) {
            Some(Part::Any) => {
                last_any = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::One) => {}
            Some(Part::Exactly(character)) if *character == text[at] => {}
            _ => {
                let Some((any, from)) = last_any else { return false };
                last_any = Some((any, from + 1));
                (part, at) = (any + 1, from + 1);
                continue;
            }
        }
        at += 1;
        part += 1;
    }
    pattern[part..].iter().all(|part| *part == Part::Any)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Exactly(char),
}

fn parts(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let mut characters = pattern.chars();
    let mut parts = Vec::new();
    while let Some(character) = characters.next() {
        parts.push(match character {
            character if Some(character) == escape => Part::Exactly(characters.next().unwrap_or(character)),
            '%' => Part::Any,
            '_' => Part::One,
            character => Part::Exactly(character),
        });
    }
    parts
}
