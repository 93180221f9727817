//! Modules: what `require` gives.
//!
//! Here: names of modules, asking for their texts, loading each once, cycles. Elsewhere: the host's own modules
//! (`host`), reading files (whoever implements [`Modules`]).
//! Invariant: a name is a chain of plain words, so none leads out of a directory (`no_name_of_a_module_leads_outside`);
//! what failed to load is tried again and is no cycle (`a_module_that_failed_is_not_taken_for_a_cycle`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use crate::error::{LuaError, told};
use crate::{FILE_BYTES, TEXT_BYTES, vm};

/// Modules that one profile may load.
const MODULES: usize = 32;
/// Texts that one evaluation takes in: a module that failed may be tried again.
const TEXTS: usize = 2 * MODULES;
/// Modules that may wait for each other.
const DEPTH: usize = 16;
/// Words in one name, and letters in one word.
const WORDS: usize = 8;
const WORD_CHARS: usize = 64;
/// Names that only the host gives.
pub(crate) const HOST: &str = "minke";

/// The name of a local module: `words.of.letters`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleName(String);

impl ModuleName {
    pub(crate) fn parse(said: &str) -> Result<ModuleName, String> {
        let shown: String = said.chars().take(WORD_CHARS).flat_map(char::escape_debug).collect();
        if said.contains('/') || said.contains('\\') || said.contains("..") {
            return Err(format!(
                "`{shown}` leads somewhere else: modules lie below the profile's own directory and are named with dots, \
                 as in require(\"lib.common\")"
            ));
        }
        let words: Vec<&str> = said.split('.').collect();
        let plain = |word: &&str| {
            !word.is_empty()
                && word.len() <= WORD_CHARS
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if words.len() > WORDS || !words.iter().all(plain) {
            return Err(format!(
                "`{shown}` is no name of a module: it is at most {WORDS} words of letters, digits, `_` and `-`, with \
                 dots between them"
            ));
        }
        Ok(ModuleName(said.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The words between the dots: directories, then the file without its ending.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// As errors call it.
    pub file: String,
    pub text: String,
}

/// Who has the local modules of a profile.
pub trait Modules {
    /// The module of this name, nothing if there is none, or why it cannot be had.
    fn module(&self, name: &ModuleName) -> Result<Option<Module>, String>;
}

/// A profile that has none.
pub struct NoModules;

impl Modules for NoModules {
    fn module(&self, _: &ModuleName) -> Result<Option<Module>, String> {
        Ok(None)
    }
}

/// Every text of an evaluation, by the number that the machine knows it by.
#[derive(Default)]
pub(crate) struct Chunks(RefCell<Vec<Module>>);

impl Chunks {
    /// Takes a text in, if it is not too much.
    pub(crate) fn add(&self, module: Module) -> Result<usize, String> {
        if module.text.len() > FILE_BYTES {
            return Err(format!("it holds {} bytes, and {FILE_BYTES} are the most", module.text.len()));
        }
        let mut chunks = self.0.borrow_mut();
        if chunks.len() >= TEXTS {
            return Err(format!("more than {TEXTS} texts were loaded, those that failed among them"));
        }
        let all = chunks.iter().map(|chunk| chunk.text.len()).sum::<usize>() + module.text.len();
        if all > TEXT_BYTES {
            return Err(format!(
                "the profile and its modules hold {all} bytes, and {TEXT_BYTES} are the most"
            ));
        }
        chunks.push(module);
        Ok(chunks.len() - 1)
    }

    pub(crate) fn file(&self, number: usize) -> String {
        self.0.borrow().get(number).map(|chunk| chunk.file.clone()).unwrap_or_default()
    }

    /// The text of a file that was taken in.
    pub(crate) fn text(&self, file: &str) -> Option<String> {
        self.0.borrow().iter().find(|chunk| chunk.file == file).map(|chunk| chunk.text.clone())
    }
}

/// What is loaded, and what is being loaded.
pub(crate) struct Loader {
    modules: Rc<dyn Modules>,
    chunks: Rc<Chunks>,
    host: BTreeMap<&'static str, Table>,
    loaded: RefCell<BTreeMap<ModuleName, Value>>,
    loading: RefCell<Vec<ModuleName>>,
}

impl Loader {
    pub(crate) fn new(
        modules: Rc<dyn Modules>,
        chunks: Rc<Chunks>,
        host: BTreeMap<&'static str, Table>,
    ) -> Loader {
        Loader { modules, chunks, host, loaded: RefCell::default(), loading: RefCell::default() }
    }

    /// `require(name)`.
    pub(crate) fn require(&self, lua: &Lua, said: &str) -> mlua::Result<Value> {
        let refuse = |message: String| LuaError::here(lua, &self.chunks, message);
        if let Some(table) = self.host.get(said) {
            return Ok(Value::Table(table.clone()));
        }
        if said == HOST || said.strip_prefix(HOST).is_some_and(|rest| rest.starts_with('.')) {
            let have: Vec<&str> = self.host.keys().copied().collect();
            let shown: String = said.chars().take(WORD_CHARS).flat_map(char::escape_debug).collect();
            return Err(refuse(format!("there is no `{shown}`: there are {}", have.join(", "))));
        }
        let name = ModuleName::parse(said).map_err(refuse)?;
        if let Some(value) = self.loaded.borrow().get(&name) {
            return Ok(value.clone());
        }
        self.room_for(&name).map_err(refuse)?;
        let module = self.modules.module(&name).map_err(|why| refuse(format!("module `{name}`: {why}")))?;
        let Some(module) = module else {
            return Err(refuse(format!("there is no module `{name}` beside the profile")));
        };
        let number =
            self.chunks.add(module.clone()).map_err(|why| refuse(format!("module `{name}`: {why}")))?;
        self.loading.borrow_mut().push(name.clone());
        let value = vm::chunk(lua, number, &module.text).and_then(|chunk| chunk.call::<Value>(()));
        self.loading.borrow_mut().pop();
        // With its own place, which is nearer than the place of the `require`.
        let value = value.map_err(|e| mlua::Error::external(told(&e, &self.chunks)))?;
        if value.is_nil() {
            return Err(refuse(format!("module `{name}` returns nothing: end it with `return`")));
        }
        self.loaded.borrow_mut().insert(name, value.clone());
        Ok(value)
    }

    fn room_for(&self, name: &ModuleName) -> Result<(), String> {
        let loading = self.loading.borrow();
        if let Some(at) = loading.iter().position(|other| other == name) {
            let circle = loading.iter().skip(at).chain([name]).map(ModuleName::as_str);
            let circle: Vec<&str> = circle.collect();
            return Err(format!("modules require each other in a circle: {}", circle.join(" → ")));
        }
        if loading.len() >= DEPTH {
            return Err(format!("modules require each other {DEPTH} deep, which is the most"));
        }
        if self.loaded.borrow().len() >= MODULES {
            return Err(format!("a profile may load {MODULES} modules, and these are more"));
        }
        Ok(())
    }
}
