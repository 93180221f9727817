//! Types, functions and structs of the source files, read with `syn`, and the figures about them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::{Figure, Figures};

/// Type names that every crate may define.
const CONVENTIONAL: &[&str] = &["Args", "Error", "Config", "Options"];
/// Irregular participles that name no thing. Regular ones end in `ed` or `ing`.
const PARTICIPLES: &[&str] = &[
    "Begun",
    "Bound",
    "Broken",
    "Brought",
    "Built",
    "Caught",
    "Chosen",
    "Cut",
    "Drawn",
    "Forgotten",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Kept",
    "Known",
    "Laid",
    "Left",
    "Lent",
    "Lost",
    "Made",
    "Meant",
    "Met",
    "Owed",
    "Paid",
    "Put",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spent",
    "Spoken",
    "Stuck",
    "Taken",
    "Told",
    "Typed",
    "Written",
];
/// Nouns that only look like participles.
const NOUNS: &[&str] =
    &["Embed", "Feed", "Heading", "Padding", "Pricing", "Seed", "Setting", "Speed", "Spelling", "String"];

/// A type definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    pub name: String,
    pub place: String,
}

/// A function or method definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub place: String,
    pub lines: usize,
    pub arguments: usize,
    pub has_tuple: bool,
}

/// The items of one Rust file, without its `#[cfg(test)]` modules.
#[derive(Debug, Clone, Default)]
pub struct SourceFile {
    pub path: PathBuf,
    /// `crates/pod` of `crates/pod/src/calls/gate.rs`.
    pub package: String,
    /// Module path below the crate root; `None` for files of tests and benches.
    pub module: Option<Vec<String>>,
    pub lines: usize,
    pub types: Vec<TypeName>,
    pub functions: Vec<Function>,
    /// Inherent methods: type name and method name.
    pub methods: Vec<String>,
    pub fields: Vec<(String, usize)>,
    /// Paths that begin with `crate`, `self`, `super` or a plain name, as segments.
    pub paths: BTreeSet<Vec<String>>,
    /// Names that the file re-exports, with the paths that they lead to.
    pub reexports: Vec<(String, Vec<String>)>,
}

impl SourceFile {
    pub fn parse(path: &Path, text: &str) -> Result<SourceFile, String> {
        let parsed = syn::parse_file(text).map_err(|e| format!("could not parse {}: {e}", path.display()))?;
        let (package, module) = locate(path);
        let mut file = SourceFile {
            path: path.to_path_buf(),
            package,
            module,
            lines: text.lines().count(),
            ..SourceFile::default()
        };
        for item in &parsed.items {
            if let syn::Item::Mod(inner) = item
                && is_test(&inner.attrs)
            {
                file.lines -= lines_of(inner).min(file.lines);
            }
        }
        ItemReader { file: &mut file, methods_of: None }.visit_file(&parsed);
        Ok(file)
    }

    fn is_product(&self) -> bool {
        self.module.is_some()
    }
}

/// Package folder and module path of a file; files outside `src` have no module path.
fn locate(path: &Path) -> (String, Option<Vec<String>>) {
    let parts: Vec<String> =
        path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let Some(src) = parts.iter().position(|part| part == "src") else {
        let end = parts.iter().position(|part| part == "tests" || part == "benches" || part == "examples");
        return (parts[..end.unwrap_or(parts.len().saturating_sub(1))].join("/"), None);
    };
    let package = parts[..src].join("/");
    let mut module: Vec<String> = parts[src + 1..].to_vec();
    if let Some(last) = module.last_mut() {
        *last = last.trim_end_matches(".rs").to_owned();
    }
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    (package, Some(module))
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn lines_of(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line + 1 - span.start().line
}

struct ItemReader<'a> {
    file: &'a mut SourceFile,
    /// The type of the inherent impl around the visited item.
    methods_of: Option<String>,
}

impl ItemReader<'_> {
    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file.path.display())
    }

    fn add_type(&mut self, ident: &syn::Ident) {
        let place = self.place(ident.span().start().line);
        self.file.types.push(TypeName { name: ident.to_string(), place });
    }

    fn add_function(&mut self, signature: &syn::Signature, lines: usize) {
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(input) => Some(input),
            syn::FnArg::Receiver(_) => None,
        });
        let is_tuple =
            |input: &syn::PatType| matches!(&*input.ty, syn::Type::Tuple(tuple) if !tuple.elems.is_empty());
        let place = self.place(signature.ident.span().start().line);
        self.file.functions.push(Function {
            name: signature.ident.to_string(),
            place,
            lines,
            arguments: inputs.clone().count(),
            has_tuple: inputs.clone().any(is_tuple),
        });
    }

    fn add_use(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree, exported: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use(prefix, &path.tree, exported);
                prefix.pop();
            }
            syn::UseTree::Name(name) => {
                self.add_used(prefix, &name.ident.to_string(), &name.ident.to_string(), exported)
            }
            syn::UseTree::Rename(name) => {
                self.add_used(prefix, &name.ident.to_string(), &name.rename.to_string(), exported);
            }
            syn::UseTree::Glob(_) => {
                self.file.paths.insert(prefix.clone());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(prefix, tree, exported);
                }
            }
        }
    }

    fn add_used(&mut self, prefix: &[String], name: &str, bound: &str, exported: bool) {
        let mut path = prefix.to_vec();
        path.push(name.to_owned());
        if exported {
            self.file.reexports.push((bound.to_owned(), path.clone()));
        }
        self.file.paths.insert(path);
    }
}

impl<'ast> Visit<'ast> for ItemReader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_type(&item.ident);
        self.file.fields.push((item.ident.to_string(), item.fields.len()));
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_type(&item.ident);
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_type(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&mut Vec::new(), &item.tree, exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.file.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_function(&item.sig, lines_of(item));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add_function(&item.sig, lines_of(item));
        syn::visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let outer = self.methods_of.take();
        if item.trait_.is_none()
            && let syn::Type::Path(path) = &*item.self_ty
        {
            self.methods_of = path.path.segments.last().map(|segment| segment.ident.to_string());
        }
        let is_inherent = item.trait_.is_none();
        for inner in &item.items {
            if let syn::ImplItem::Fn(method) = inner {
                if is_inherent {
                    self.add_function(&method.sig, lines_of(method));
                }
                if let Some(name) = self.methods_of.clone() {
                    self.file.methods.push(name);
                }
            }
        }
        syn::visit::visit_item_impl(self, item);
        self.methods_of = outer;
    }
}

/// True for a name that says how a value came about and not what it is.
pub(super) fn is_participle(name: &str) -> bool {
    let one_word = name.chars().skip(1).all(char::is_lowercase);
    let ends = name.ends_with("ed") || name.ends_with("ing");
    one_word && !NOUNS.contains(&name) && (ends || PARTICIPLES.contains(&name))
}

/// Figures of types, functions, structs and folders.
#[expect(clippy::cast_precision_loss, reason = "counts of items are far below the limit")]
pub(super) fn figures(files: &[SourceFile]) -> Figures {
    let product: Vec<&SourceFile> = files.iter().filter(|file| file.is_product()).collect();
    let types: Vec<&TypeName> = product.iter().flat_map(|file| &file.types).collect();
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in &types {
        by_name.entry(&kind.name).or_default().push(&kind.place);
    }
    let participles: Vec<String> = types
        .iter()
        .filter(|kind| is_participle(&kind.name))
        .map(|kind| format!("{} at {}", kind.name, kind.place))
        .collect();
    let repeated = by_name.iter().filter(|(name, _)| !CONVENTIONAL.contains(name));
    let functions: Vec<&Function> = product.iter().flat_map(|file| &file.functions).collect();
    let mut lengths: Vec<usize> = functions.iter().map(|function| function.name.len()).collect();
    lengths.sort_unstable();
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    let mut fields: BTreeMap<String, usize> = BTreeMap::new();
    for file in &product {
        for owner in &file.methods {
            *methods.entry(format!("{}::{owner}", file.package)).or_default() += 1;
        }
        for (owner, count) in &file.fields {
            fields.insert(format!("{owner} at {}", file.path.display()), *count);
        }
    }
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        if let Some(folder) = file.path.parent() {
            *folders.entry(folder.display().to_string()).or_default() += 1;
        }
    }
    let tuples = functions.iter().filter(|function| function.has_tuple);
    let tuples: Vec<String> =
        tuples.map(|function| format!("{} at {}", function.name, function.place)).collect();
    let long = functions.iter().filter(|function| function.lines > 100);
    let long: Vec<String> = long.map(|f| format!("{} lines: {} at {}", f.lines, f.name, f.place)).collect();
    let repeated: BTreeMap<String, usize> =
        repeated.map(|(name, places)| ((*name).to_owned(), places.len())).collect();
    let arguments: BTreeMap<String, usize> =
        functions.iter().map(|f| (format!("{} at {}", f.name, f.place), f.arguments)).collect();
    Figures::from([
        (
            "participle types %",
            Figure {
                value: 100.0 * participles.len() as f64 / types.len().max(1) as f64,
                places: participles,
            },
        ),
        (
            "distinct names / types",
            Figure { value: by_name.len() as f64 / types.len().max(1) as f64, places: most(&repeated, 1) },
        ),
        ("definitions of one type name", largest(&repeated, 3)),
        (
            "median function name",
            Figure { value: lengths.get(lengths.len() / 2).copied().unwrap_or(0) as f64, places: Vec::new() },
        ),
        ("methods of one type", largest(&methods, 80)),
        ("fields of one struct", largest(&fields, 25)),
        ("files in one folder", largest(&folders, 20)),
        ("tuple parameters", Figure { value: tuples.len() as f64, places: tuples }),
        ("functions over 100 lines", Figure { value: long.len() as f64, places: long }),
        ("most arguments", largest(&arguments, 5)),
    ])
}

/// The largest count; its places are all that are over `limit`.
#[expect(clippy::cast_precision_loss, reason = "counts of items are far below the limit")]
fn largest(counts: &BTreeMap<String, usize>, limit: usize) -> Figure {
    Figure { value: counts.values().copied().max().unwrap_or(0) as f64, places: most(counts, limit) }
}

fn most(counts: &BTreeMap<String, usize>, limit: usize) -> Vec<String> {
    let mut over: Vec<(&String, usize)> =
        counts.iter().map(|(name, count)| (name, *count)).filter(|(_, count)| *count > limit).collect();
    over.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    over.into_iter().map(|(name, count)| format!("{count} {name}")).collect()
}
