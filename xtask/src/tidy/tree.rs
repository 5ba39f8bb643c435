//! The files of the repository, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::Source;
use crate::shell::Result;

/// Every text file by its path from the root.
pub(super) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the working tree under `root`; leaves out files that are not text, built, or hidden (but `.ci`, `.cargo` and `.github`).
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        read_folder(root, "", &mut files).map_err(|error| format!("reading {}: {error}", root.display()))?;
        Ok(Self { files })
    }

    /// A tree made up by a test.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { files }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Every file: path and text.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Files whose path ends with `end`.
    pub(super) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(end))
    }

    /// The Rust files under `folder` (`""` for all).
    pub(super) fn rust(&self, folder: &str) -> impl Iterator<Item = Source<'_>> {
        self.ending(".rs").filter(move |(path, _)| path.starts_with(folder)).map(|(path, text)| Source::new(path, text))
    }

    /// Whether `path` is a file or a folder with files in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(inside.clone()..).next().is_some_and(|(p, _)| p.starts_with(&inside))
    }
}

/// The lines of a document outside its code blocks, each with its number.
pub(super) fn prose(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let lines = document.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    lines.map(|(index, line)| (index + 1, line))
}

fn read_folder(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo" | ".github" | ".gitignore");
        // Cargo marks its build directories.
        if hidden || entry.path().join("CACHEDIR.TAG").exists() {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            // A file that is not UTF-8 (a picture) is there, and has no text.
            files.insert(path, String::from_utf8(std::fs::read(entry.path())?).unwrap_or_default());
        }
    }
    Ok(())
}
