//! Which paths a server takes, checked before anything is sent.

/// Why `path` is not a path, or `None` when it is one. `prefix` allows a last `/`, to which the server appends a number.
pub(crate) fn fault(path: &str, prefix: bool) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("a path starts with /") };
    if rest.is_empty() {
        return None;
    }
    if let Some(fault) = path.chars().find_map(refused) {
        return Some(fault);
    }
    let rest = rest.strip_suffix('/').filter(|_| prefix).unwrap_or(rest);
    rest.split('/').find_map(|segment| match segment {
        "" => Some("a path has no empty segment, and no / at its end"),
        "." | ".." => Some("a path has no segment . or .."),
        _ => None,
    })
}

/// The server refuses control characters, what Java writes as surrogates, private use, and specials.
fn refused(c: char) -> Option<&'static str> {
    match c {
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Some("a path has no control characters"),
        '\u{e000}'..='\u{f8ff}' | '\u{fff0}'.. => {
            Some("a path has no characters of private use (U+E000 to U+F8FF) and none from U+FFF0 on")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn the_paths_of_the_server_are_taken() {
        for path in ["/", "/a", "/a/b.c/..d", "/ü", "/a b", "/a/_c_1-lock-0000000001"] {
            assert_eq!(fault(path, false), None, "{path}");
        }
        assert_eq!(fault("/a/", true), None);
    }

    #[test]
    fn other_paths_are_refused() {
        for path in ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\0", "/\u{1}", "/\u{e001}", "/\u{1f600}"] {
            assert!(fault(path, false).is_some(), "{path:?}");
        }
        assert!(fault("/a//", true).is_some());
        assert!(fault("//", true).is_some());
    }
}
