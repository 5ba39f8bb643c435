//! Rust on one line, spaced as rustfmt would.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

pub(super) fn text(part: &impl ToTokens) -> String {
    let mut line = Line::default();
    line.add(part.to_token_stream());
    line.text.replace(",)", ")")
}

#[derive(Default)]
struct Line {
    text: String,
    /// The next token belongs to the one before: `::`, `->`, a lifetime.
    joined: bool,
}

impl Line {
    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Brace => ("{ ", " }"),
                        Delimiter::None => ("", ""),
                    };
                    self.put(open);
                    self.add(group.stream());
                    self.text.push_str(close);
                    self.joined = false;
                }
                TokenTree::Punct(punct) => {
                    self.put(&punct.as_char().to_string());
                    self.joined = punct.spacing() == Spacing::Joint || punct.as_char() == '\'';
                }
                other => {
                    self.put(&other.to_string());
                    self.joined = false;
                }
            }
        }
    }

    fn put(&mut self, next: &str) {
        if !self.joined && self.needs_space(next) {
            self.text.push(' ');
        }
        self.text.push_str(next);
    }

    fn needs_space(&self, next: &str) -> bool {
        let before = self.text.as_str();
        let is_word = |text: &str| text.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"');
        let operator = ["->", "=>", "=", "+", "|"].iter().any(|end| before.ends_with(end));
        if before.is_empty() || before.ends_with(' ') {
            return false;
        }
        if operator || before.ends_with([',', ';']) || (before.ends_with(':') && !before.ends_with("::")) {
            return true;
        }
        match next {
            "," | ";" | ":" | "." | "?" | ">" | "<" | "!" => false,
            "(" | "[" => {
                let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '\'')).next().unwrap_or_default();
                word.starts_with('\'') || ["mut", "dyn", "for", "in", "impl", "where", "const"].contains(&word)
            }
            "=" | "-" | "+" | "{ " | "|" => true,
            "&" | "*" | "'" | "#" => is_word(before) || before.ends_with('>') || before.ends_with(')'),
            _ => is_word(before) || before.ends_with(['>', ')', ']', '}', '?']),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_look_as_they_are_written() {
        for line in [
            "pub fn new(name: impl AsRef<str>) -> Result<Self>",
            "pub async fn run<T, F, Fut>(&self, body: F) -> Result<T> where F: FnOnce(Guard) -> Fut, Fut: Future<Output = T>",
            "fn names<'a>(&'a self, from: Option<&'a Name>, limit: usize) -> BoxFuture<'a, Result<Vec<Name>>>",
            "pub const fn before(mut self, at: &mut [u8; 4], by: fn(StoreUrl) -> u8) -> (u8, Self)",
            "fn a(self: Arc<Self>) -> Arc<dyn Store + Send>",
            "fn options() -> &'static [&'static str]",
        ] {
            let tokens: TokenStream = line.parse().unwrap();
            assert_eq!(text(&tokens), line);
        }
    }
}
