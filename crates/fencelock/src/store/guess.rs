//! What was meant by a word that nobody knows.

/// The known word that `word` most likely stands for: one that continues it or that it continues, or the one with the
/// fewest letters changed, if these are few.
pub(super) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let ranked = known.into_iter().map(|known| {
        let continues = !word.is_empty() && (known.starts_with(&word) || word.starts_with(known));
        (if continues { 0 } else { distance(&word, known) }, known)
    });
    let most = (word.chars().count() / 3).max(1);
    ranked.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= most).map(|(_, known)| known)
}

/// How many letters must be changed, added or left out to make one of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (index, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[index + 1];
            row[index + 1] = changed.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_recognised_by_what_little_is_wrong_with_it() {
        let known = ["ttl_ms", "renew_interval_ms", "margin_ms", "request_deadline_ms", "owner", "layout", "tick_ms"];
        for (word, expected) in [
            ("ttl", Some("ttl_ms")),
            ("ttlms", Some("ttl_ms")),
            ("TTL_MS", Some("ttl_ms")),
            ("tick", Some("tick_ms")),
            ("layuot", Some("layout")),
            ("renew_intervall_ms", Some("renew_interval_ms")),
            ("x", None),
            ("", None),
            ("timeout", None),
        ] {
            assert_eq!(meant(word, known), expected, "{word}");
        }
    }
}
