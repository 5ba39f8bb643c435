//! What is public, one line for each thing that users can name.
//!
//! Types stand as they are written where they are declared, without their paths. Not seen are auto traits (`Send`, which
//! `promises.rs` in the library checks), blanket implementations, and what a macro of another crate makes.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, ItemTrait, TraitItem, Type};

use super::sources::{self, Meaning, Path, Sources, is_public};
use super::tokens::text;

pub(super) fn lines(sources: &Sources, name: &str, default: &BTreeSet<String>) -> Vec<String> {
    let mut surface = Surface { sources, default, exports: BTreeMap::new(), lines: BTreeSet::new() };
    surface.walk(&Vec::new(), name, &BTreeSet::new());
    surface.items();
    surface.impls();
    surface.lines.into_iter().map(|(_, _, line)| line).collect()
}

/// One way to name an item. Compared by what costs a user least: few features, a short path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Export {
    features: BTreeSet<String>,
    segments: usize,
    path: String,
}

struct Surface<'s> {
    sources: &'s Sources,
    default: &'s BTreeSet<String>,
    /// By the module and the name that it was declared in and with.
    exports: BTreeMap<(Path, String), BTreeSet<Export>>,
    /// Sorted by path, then by what kind of line it is.
    lines: BTreeSet<(String, u8, String)>,
}

impl Surface<'_> {
    fn walk(&mut self, module: &Path, public: &str, outer: &BTreeSet<String>) {
        let sources = self.sources;
        for item in sources.module(module).map(|module| &module.items).into_iter().flatten() {
            let own = sources::features(sources::attributes(item));
            // A feature that is on by default asks nothing of anybody.
            let features =
                outer.iter().cloned().chain(own.into_iter().filter(|own| !self.default.contains(own))).collect();
            match item {
                Item::Mod(inner) if is_public(&inner.vis) => {
                    let name = inner.ident.to_string();
                    let path = [module.as_slice(), std::slice::from_ref(&name)].concat();
                    self.module(&path, format!("{public}::{name}"), &features);
                }
                Item::Use(import) if is_public(&import.vis) => {
                    for (name, target) in sources::uses(&import.tree) {
                        self.import(module, &target, format!("{public}::{name}"), &features);
                    }
                }
                item if is_public_item(item) => {
                    let name = sources::name(item).unwrap_or_default();
                    self.export(module, &name, format!("{public}::{name}"), &features);
                }
                _ => {}
            }
        }
    }

    fn module(&mut self, module: &Path, public: String, features: &BTreeSet<String>) {
        self.line(&public, 0, format!("pub mod {public}"), features);
        self.walk(module, &public, features);
    }

    fn import(&mut self, at: &Path, target: &[String], public: String, features: &BTreeSet<String>) {
        match self.sources.meaning(at, target) {
            Meaning::Module(module) => self.module(&module, public, features),
            Meaning::Item(module, name) => self.export(&module, &name, public, features),
            Meaning::Foreign => self.line(&public, 0, format!("pub use {} as {public}", target.join("::")), features),
        }
    }

    fn export(&mut self, module: &Path, name: &str, path: String, features: &BTreeSet<String>) {
        let export = Export { features: features.clone(), segments: path.matches("::").count(), path };
        self.exports.entry((module.clone(), name.to_owned())).or_default().insert(export);
    }

    fn line(&mut self, path: &str, rank: u8, line: String, features: &BTreeSet<String>) {
        let marks: String = features.iter().map(|feature| format!(" [{feature}]")).collect();
        self.lines.insert((path.to_owned(), rank, line + &marks));
    }

    /// The shortest way to name what a path means, if there is any.
    fn export_of(&self, at: &Path, path: &syn::Path) -> Option<Export> {
        let segments: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let Meaning::Item(module, name) = self.sources.meaning(at, &segments) else { return None };
        self.exports.get(&(module, name))?.first().cloned()
    }

    fn items(&mut self) {
        for ((module, name), exports) in self.exports.clone() {
            let mut exports = exports.into_iter();
            let Some(Export { path, features, .. }) = exports.next() else { continue };
            for other in exports {
                self.line(&other.path, 0, format!("pub use {path} as {}", other.path), &other.features);
            }
            for item in self.sources.named(&module, &name) {
                self.item(item, &path, &features);
            }
        }
    }

    fn item(&mut self, item: &Item, path: &str, features: &BTreeSet<String>) {
        let attributes = sources::attributes(item);
        let open = attributes.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"));
        let open = if open { "#[non_exhaustive] " } else { "" };
        match item {
            Item::Struct(item) => self.structure(item, path, open, features),
            Item::Enum(item) => self.enumeration(item, path, open, features),
            Item::Trait(item) => self.contract(item, path, features),
            Item::Type(item) => {
                let line = format!("pub type {path}{} = {}", text(&item.generics), text(&item.ty));
                self.line(path, 1, line, features);
            }
            Item::Const(item) => self.line(path, 1, format!("pub const {path}: {}", text(&item.ty)), features),
            Item::Static(item) => self.line(path, 1, format!("pub static {path}: {}", text(&item.ty)), features),
            Item::Fn(item) => self.line(path, 1, signature("pub ", &item.sig, path), features),
            _ => {}
        }
        for name in sources::derived(attributes) {
            self.line(path, 5, format!("impl {name} for {path}"), features);
        }
    }

    fn structure(&mut self, item: &ItemStruct, path: &str, open: &str, features: &BTreeSet<String>) {
        self.line(path, 1, format!("{open}pub struct {path}{}", text(&item.generics)), features);
        for (index, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            self.line(path, 2, format!("pub {path}::{name}: {}", text(&field.ty)), features);
        }
    }

    fn enumeration(&mut self, item: &ItemEnum, path: &str, open: &str, features: &BTreeSet<String>) {
        self.line(path, 1, format!("{open}pub enum {path}{}", text(&item.generics)), features);
        for variant in &item.variants {
            let fields = variant.fields.iter().map(|field| match &field.ident {
                Some(name) => format!("{name}: {}", text(&field.ty)),
                None => text(&field.ty),
            });
            let fields = fields.collect::<Vec<_>>().join(", ");
            let fields = match variant.fields {
                Fields::Unit => String::new(),
                Fields::Unnamed(_) => format!("({fields})"),
                Fields::Named(_) => format!(" {{ {fields} }}"),
            };
            self.line(path, 2, format!("{path}::{}{fields}", variant.ident), features);
        }
    }

    fn contract(&mut self, item: &ItemTrait, path: &str, features: &BTreeSet<String>) {
        let above = if item.supertraits.is_empty() { String::new() } else { format!(": {}", text(&item.supertraits)) };
        self.line(path, 1, format!("pub trait {path}{}{above}", text(&item.generics)), features);
        for inner in &item.items {
            match inner {
                TraitItem::Fn(method) => {
                    let provided = if method.default.is_some() { " (provided)" } else { "" };
                    let line = signature("", &method.sig, &format!("{path}::{}", method.sig.ident)) + provided;
                    self.line(path, 3, line, features);
                }
                TraitItem::Type(inner) => self.line(path, 3, format!("type {path}::{}", inner.ident), features),
                TraitItem::Const(inner) => {
                    self.line(path, 3, format!("const {path}::{}: {}", inner.ident, text(&inner.ty)), features);
                }
                _ => {}
            }
        }
    }

    fn impls(&mut self) {
        let sources = self.sources;
        for (module, content) in sources.modules() {
            for item in &content.items {
                let Item::Impl(item) = item else { continue };
                let Type::Path(of) = &*item.self_ty else { continue };
                if let Some(export) = self.export_of(module, &of.path) {
                    let arguments = of.path.segments.last().map(|last| text(&last.arguments)).unwrap_or_default();
                    self.implementation(module, item, &export, &arguments);
                }
            }
        }
    }

    fn implementation(&mut self, module: &Path, item: &ItemImpl, export: &Export, arguments: &str) {
        let of = format!("{}{arguments}", export.path);
        let generics = text(&item.generics);
        let Some((_, of_trait, _)) = &item.trait_ else {
            for inner in &self.expanded(module, &item.items) {
                self.inherent(inner, &of, export);
            }
            return;
        };
        let segments: Path = of_trait.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let mut features = export.features.clone();
        if self.sources.meaning(module, &segments) != Meaning::Foreign {
            // A trait that nobody can name is nothing that users see.
            let Some(of_trait) = self.export_of(module, of_trait) else { return };
            features.extend(of_trait.features);
        }
        let mut line = format!("impl{generics} {} for {of}", text(of_trait));
        for inner in &item.items {
            if let ImplItem::Type(inner) = inner {
                line.push_str(&format!(", {} = {}", inner.ident, text(&inner.ty)));
            }
        }
        self.line(&export.path, 5, line, &features);
    }

    fn inherent(&mut self, item: &ImplItem, of: &str, export: &Export) {
        match item {
            ImplItem::Fn(method) if is_public(&method.vis) => {
                let line = signature("pub ", &method.sig, &format!("{of}::{}", method.sig.ident));
                self.line(&export.path, 4, line, &export.features);
            }
            ImplItem::Const(item) if is_public(&item.vis) => {
                let line = format!("pub const {of}::{}: {}", item.ident, text(&item.ty));
                self.line(&export.path, 3, line, &export.features);
            }
            _ => {}
        }
    }

    /// With the macros that stand for methods written out.
    fn expanded(&self, module: &Path, items: &[ImplItem]) -> Vec<ImplItem> {
        let expand = |item: &ImplItem| match item {
            ImplItem::Macro(call) => self.written_out(module, &call.mac.path).unwrap_or_default(),
            item => vec![item.clone()],
        };
        items.iter().flat_map(expand).collect()
    }

    /// What the first rule of a macro of ours makes, its parameters left as they are: they stand in documentation alone.
    fn written_out(&self, module: &Path, path: &syn::Path) -> Option<Vec<ImplItem>> {
        let name = path.get_ident()?.to_string();
        let imported = match self.sources.meaning(module, std::slice::from_ref(&name)) {
            Meaning::Item(module, _) => Some(module),
            _ => None,
        };
        let above = (0..=module.len()).rev().map(|depth| module[..depth].to_vec());
        let rules = imported.into_iter().chain(above).find_map(|module| {
            self.sources.named(&module, &name).find_map(|item| match item {
                Item::Macro(rules) => Some(rules.mac.tokens.clone()),
                _ => None,
            })
        })?;
        let mut groups = rules.into_iter().filter_map(|token| match token {
            proc_macro2::TokenTree::Group(group) => Some(group.stream()),
            _ => None,
        });
        let body = groups.nth(1)?;
        let made: ItemImpl = syn::parse2(quote::quote!(impl Made { #body })).ok()?;
        Some(made.items)
    }
}

fn signature(before: &str, signature: &syn::Signature, path: &str) -> String {
    let mut signature = signature.clone();
    signature.ident = quote::format_ident!("NAME");
    // What a body does with what it is given is its own matter.
    format!("{before}{}", text(&signature).replacen("NAME", path, 1).replace("(mut ", "(").replace(", mut ", ", "))
}

fn is_public_item(item: &Item) -> bool {
    match item {
        Item::Struct(item) => is_public(&item.vis),
        Item::Enum(item) => is_public(&item.vis),
        Item::Trait(item) => is_public(&item.vis),
        Item::Type(item) => is_public(&item.vis),
        Item::Const(item) => is_public(&item.vis),
        Item::Static(item) => is_public(&item.vis),
        Item::Fn(item) => is_public(&item.vis),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = r#"
        mod inner;
        #[cfg(feature = "more")]
        pub mod store;
        #[cfg(not(feature = "more"))]
        mod store;
        pub use inner::{Thing, open as start};
        #[cfg(test)]
        pub struct Forgotten;
    "#;
    const INNER: &str = r#"
        macro_rules! options { ($of:literal) => { #[doc = concat!("a", $of)] pub fn option(self) -> Self { self } }; }
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct Thing<K = u8> { pub size: Option<usize>, hidden: K }
        impl<K: Send> Thing<K> { options!("x"); pub(crate) fn secret(&self) {} }
        impl crate::store::Store for Thing { fn go(&self) {} }
        impl Private for Thing {}
        trait Private {}
        pub async fn open<'a>(name: &'a str) -> Result<Thing, ()> { todo(name) }
    "#;
    const STORE: &str = "pub trait Store: Send { fn go(&self); fn stay(&self) {} }\npub use crate::inner::Thing;";

    fn listed(features: &[&str]) -> Vec<String> {
        let read = |path: &str| match path {
            "src/lib.rs" => Some(LIB.to_owned()),
            "src/inner.rs" => Some(INNER.to_owned()),
            "src/store/mod.rs" => Some(STORE.to_owned()),
            _ => None,
        };
        let default = features.iter().map(|feature| (*feature).to_owned()).collect();
        lines(&Sources::read(&read, "src").unwrap(), "x", &default)
    }

    #[test]
    fn what_users_can_name_is_listed_where_they_find_it_first_and_nothing_else() {
        assert_eq!(
            listed(&[]),
            [
                "#[non_exhaustive] pub struct x::Thing<K = u8>",
                "pub x::Thing::size: Option<usize>",
                "pub fn x::Thing<K>::option(self) -> Self",
                "impl Clone for x::Thing",
                "impl Debug for x::Thing",
                "impl crate::store::Store for x::Thing [more]",
                "pub async fn x::start<'a>(name: &'a str) -> Result<Thing, ()>",
                "pub mod x::store [more]",
                "pub trait x::store::Store: Send [more]",
                "fn x::store::Store::go(&self) [more]",
                "fn x::store::Store::stay(&self) (provided) [more]",
                "pub use x::Thing as x::store::Thing [more]",
            ]
        );
    }

    #[test]
    fn a_feature_that_is_on_by_default_is_not_marked() {
        assert!(listed(&["more"]).iter().all(|line| !line.contains('[') || line.starts_with("#[non")));
    }
}
