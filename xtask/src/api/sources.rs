//! The sources of a crate as modules, with every feature on, and what a path in them means.

use std::collections::BTreeMap;

use syn::{Attribute, Item, Meta, UseTree, Visibility};

use crate::shell::Result;

/// A module by its path from the root of the crate, in segments.
pub(super) type Path = Vec<String>;

pub(super) struct Sources {
    modules: BTreeMap<Path, Module>,
}

#[derive(Default)]
pub(super) struct Module {
    pub(super) items: Vec<Item>,
    imports: BTreeMap<String, Path>,
}

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meaning {
    Module(Path),
    /// An item of a module.
    Item(Path, String),
    /// Something of another crate.
    Foreign,
}

impl Sources {
    pub(super) fn read(read: &dyn Fn(&str) -> Option<String>, folder: &str) -> Result<Self> {
        let mut sources = Self { modules: BTreeMap::new() };
        let file = format!("{folder}/lib.rs");
        let text = read(&file).ok_or_else(|| format!("{file} is missing"))?;
        sources.add(read, Vec::new(), folder, parse(&file, &text)?)?;
        Ok(sources)
    }

    fn add(&mut self, read: &dyn Fn(&str) -> Option<String>, path: Path, folder: &str, items: Vec<Item>) -> Result {
        let items: Vec<Item> = items.into_iter().filter(|item| is_shipped(attributes(item))).collect();
        let mut module = Module::default();
        for item in items {
            match &item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let below = [path.clone(), vec![name.clone()]].concat();
                    let below_folder = format!("{folder}/{name}");
                    let content = match &inner.content {
                        Some((_, items)) => items.clone(),
                        None => self::content(read, &[format!("{below_folder}.rs"), format!("{below_folder}/mod.rs")])?,
                    };
                    self.add(read, below, &below_folder, content)?;
                }
                Item::Use(import) => {
                    for (name, target) in uses(&import.tree) {
                        module.imports.insert(name, target);
                    }
                }
                _ => {}
            }
            module.items.push(item);
        }
        self.modules.insert(path, module);
        Ok(())
    }

    pub(super) fn modules(&self) -> impl Iterator<Item = (&Path, &Module)> {
        self.modules.iter()
    }

    pub(super) fn module(&self, path: &[String]) -> Option<&Module> {
        self.modules.get(path)
    }

    /// The items of a module that have that name: more than one where a type and a function share it.
    pub(super) fn named<'s>(&'s self, path: &[String], name: &'s str) -> impl Iterator<Item = &'s Item> {
        let items = self.module(path).map(|module| &module.items).into_iter().flatten();
        items.filter(move |item| self::name(item).is_some_and(|own| own == name))
    }

    /// What `path` means inside the module `at`.
    pub(super) fn meaning(&self, at: &[String], path: &[String]) -> Meaning {
        let Some((first, rest)) = path.split_first() else { return Meaning::Module(at.to_vec()) };
        match first.as_str() {
            "crate" => return self.meaning(&[], rest),
            "self" => return self.meaning(at, rest),
            "super" => return self.meaning(&at[..at.len().saturating_sub(1)], rest),
            _ => {}
        }
        let inner = [at, std::slice::from_ref(first)].concat();
        let is_module = self.modules.contains_key(&inner);
        if is_module && !(rest.is_empty() && self.named(at, first).next().is_some()) {
            return self.meaning(&inner, rest);
        }
        if rest.is_empty() && self.named(at, first).next().is_some() {
            return Meaning::Item(at.to_vec(), first.clone());
        }
        match self.module(at).and_then(|module| module.imports.get(first)) {
            Some(import) if import.first() != Some(first) || import.len() > 1 => {
                self.meaning(at, &[import.as_slice(), rest].concat())
            }
            _ => Meaning::Foreign,
        }
    }
}

fn content(read: &dyn Fn(&str) -> Option<String>, files: &[String]) -> Result<Vec<Item>> {
    for file in files {
        if let Some(text) = read(file) {
            return parse(file, &text);
        }
    }
    Err(format!("there is neither {}", files.join(" nor ")))
}

fn parse(file: &str, text: &str) -> Result<Vec<Item>> {
    syn::parse_file(text).map(|file| file.items).map_err(|error| format!("{file}: {error}"))
}

/// Whether users get it with every feature on: no test, nothing that stands in for what is left out, nothing hidden.
fn is_shipped(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let said = super::tokens::text(&attribute.meta);
        let is_off = said.starts_with("cfg(") && (said.contains("test") || said.contains("not("));
        !is_off && said != "doc(hidden)"
    })
}

/// The features that an item asks for.
pub(super) fn features(attributes: &[Attribute]) -> Vec<String> {
    let said = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let said: String = said.map(|attribute| super::tokens::text(&attribute.meta)).collect();
    said.split("feature = \"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect()
}

/// What a `use` brings in: names and what they stand for. Globs are left out: nothing here is public by one.
pub(super) fn uses(tree: &UseTree) -> Vec<(String, Path)> {
    match tree {
        UseTree::Path(path) => {
            uses(&path.tree).into_iter().map(|(name, rest)| below(&path.ident, name, rest)).collect()
        }
        UseTree::Group(group) => group.items.iter().flat_map(uses).collect(),
        UseTree::Name(name) if name.ident == "self" => vec![("self".to_owned(), Vec::new())],
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(name) => vec![(name.rename.to_string(), vec![name.ident.to_string()])],
        UseTree::Glob(_) => Vec::new(),
    }
}

/// `use first::{self}` brings in `first`.
fn below(first: &syn::Ident, name: String, rest: Path) -> (String, Path) {
    let name = if name == "self" { first.to_string() } else { name };
    (name, [vec![first.to_string()], rest].concat())
}

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub(super) fn name(item: &Item) -> Option<String> {
    Some(
        match item {
            Item::Struct(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Const(item) => &item.ident,
            Item::Static(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Macro(item) => item.ident.as_ref()?,
            _ => return None,
        }
        .to_string(),
    )
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The names in `#[derive(...)]`.
pub(super) fn derived(attributes: &[Attribute]) -> Vec<String> {
    let lists = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("derive") => Some(super::tokens::text(&list.tokens)),
        _ => None,
    });
    lists.flat_map(|list| list.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()).collect()
}
