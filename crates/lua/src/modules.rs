//! Modules: the implementation of `require`.
//!
//! Here: module names, loading their texts once, cycle detection. Elsewhere: the modules of the host
//! (`host_modules`), file access (implementations of [`ModuleProvider`]). Invariant: a name is a chain of
//! plain words, so it never leads outside the directory (`no_name_of_a_module_leads_outside`); a module that
//! failed to load is loaded again and is not reported as a cycle
//! (`a_module_that_failed_is_not_taken_for_a_cycle`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use crate::error::{LuaError, from_machine_error};
use crate::{MAX_FILE_BYTES, MAX_TOTAL_BYTES, vm};

/// The most modules of one profile.
const MAX_MODULES: usize = 32;
/// The most texts of one evaluation: a failed module may be loaded again.
const MAX_TEXTS: usize = 2 * MAX_MODULES;
/// The deepest nesting of `require`.
const MAX_MODULE_DEPTH: usize = 16;
/// The most words in one name and characters in one word.
const MAX_NAME_WORDS: usize = 8;
const MAX_WORD_CHARS: usize = 64;
/// Prefix of the modules of the host.
pub(crate) const HOST_PREFIX: &str = "minke";

/// The name of a local module: words separated by dots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleName(String);

impl ModuleName {
    pub(crate) fn parse(requested: &str) -> Result<ModuleName, String> {
        let shown: String = requested.chars().take(MAX_WORD_CHARS).flat_map(char::escape_debug).collect();
        if requested.contains('/') || requested.contains('\\') || requested.contains("..") {
            return Err(format!(
                "`{shown}` leads somewhere else: modules lie below the profile's own directory and are named with dots, \
                 as in require(\"lib.common\")"
            ));
        }
        let words: Vec<&str> = requested.split('.').collect();
        let plain = |word: &&str| {
            !word.is_empty()
                && word.len() <= MAX_WORD_CHARS
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if words.len() > MAX_NAME_WORDS || !words.iter().all(plain) {
            return Err(format!(
                "`{shown}` is not a module name: it must be at most {MAX_NAME_WORDS} words of letters, digits, `_` and `-`, with \
                 dots between them"
            ));
        }
        Ok(ModuleName(requested.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the words between the dots: directories, then the file name without extension.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSource {
    /// The file name in error messages.
    pub file: String,
    pub text: String,
}

/// Provides the local modules of a profile.
pub trait ModuleProvider {
    /// Returns the module, `None` if it does not exist, or why it is unavailable.
    fn load_module(&self, name: &ModuleName) -> Result<Option<ModuleSource>, String>;
}

/// A profile without modules.
pub struct NoModules;

impl ModuleProvider for NoModules {
    fn load_module(&self, _: &ModuleName) -> Result<Option<ModuleSource>, String> {
        Ok(None)
    }
}

/// All texts of an evaluation, indexed by their chunk number.
#[derive(Default)]
pub(crate) struct ChunkTable(RefCell<Vec<ModuleSource>>);

impl ChunkTable {
    /// Adds a text unless it exceeds a limit.
    pub(crate) fn add_chunk(&self, module: ModuleSource) -> Result<usize, String> {
        if module.text.len() > MAX_FILE_BYTES {
            return Err(format!("it has {} bytes, but the limit is {MAX_FILE_BYTES}", module.text.len()));
        }
        let mut chunks = self.0.borrow_mut();
        if chunks.len() >= MAX_TEXTS {
            return Err(format!("more than {MAX_TEXTS} texts were loaded, including failed ones"));
        }
        let all = chunks.iter().map(|chunk| chunk.text.len()).sum::<usize>() + module.text.len();
        if all > MAX_TOTAL_BYTES {
            return Err(format!(
                "the profile and its modules have {all} bytes, but the limit is {MAX_TOTAL_BYTES}"
            ));
        }
        chunks.push(module);
        Ok(chunks.len() - 1)
    }

    pub(crate) fn chunk_file(&self, number: usize) -> String {
        self.0.borrow().get(number).map(|chunk| chunk.file.clone()).unwrap_or_default()
    }

    /// Returns the text of a loaded file.
    pub(crate) fn chunk_text(&self, file: &str) -> Option<String> {
        self.0.borrow().iter().find(|chunk| chunk.file == file).map(|chunk| chunk.text.clone())
    }
}

/// Loads modules and tracks those in progress.
pub(crate) struct ModuleLoader {
    modules: Rc<dyn ModuleProvider>,
    chunks: Rc<ChunkTable>,
    host_modules: BTreeMap<&'static str, Table>,
    loaded_modules: RefCell<BTreeMap<ModuleName, Value>>,
    loading_stack: RefCell<Vec<ModuleName>>,
}

impl ModuleLoader {
    pub(crate) fn new(
        modules: Rc<dyn ModuleProvider>,
        chunks: Rc<ChunkTable>,
        host_modules: BTreeMap<&'static str, Table>,
    ) -> ModuleLoader {
        ModuleLoader {
            modules,
            chunks,
            host_modules,
            loaded_modules: RefCell::default(),
            loading_stack: RefCell::default(),
        }
    }

    /// Implements `require(name)`.
    pub(crate) fn load_required(&self, lua: &Lua, requested: &str) -> mlua::Result<Value> {
        let refuse = |message: String| LuaError::at_current_line(lua, &self.chunks, message);
        if let Some(table) = self.host_modules.get(requested) {
            return Ok(Value::Table(table.clone()));
        }
        if requested == HOST_PREFIX
            || requested.strip_prefix(HOST_PREFIX).is_some_and(|rest| rest.starts_with('.'))
        {
            let have: Vec<&str> = self.host_modules.keys().copied().collect();
            let shown: String = requested.chars().take(MAX_WORD_CHARS).flat_map(char::escape_debug).collect();
            return Err(refuse(format!("there is no `{shown}`; available: {}", have.join(", "))));
        }
        let name = ModuleName::parse(requested).map_err(refuse)?;
        if let Some(value) = self.loaded_modules.borrow().get(&name) {
            return Ok(value.clone());
        }
        self.check_load_limits(&name).map_err(refuse)?;
        let module =
            self.modules.load_module(&name).map_err(|why| refuse(format!("module `{name}`: {why}")))?;
        let Some(module) = module else {
            return Err(refuse(format!("there is no module `{name}` in the directory of the profile")));
        };
        let number =
            self.chunks.add_chunk(module.clone()).map_err(|why| refuse(format!("module `{name}`: {why}")))?;
        self.loading_stack.borrow_mut().push(name.clone());
        let value = vm::compile_chunk(lua, number, &module.text).and_then(|chunk| chunk.call::<Value>(()));
        self.loading_stack.borrow_mut().pop();
        // Keep the position inside the module, which is more precise than that of the `require`.
        let value = value.map_err(|e| mlua::Error::external(from_machine_error(&e, &self.chunks)))?;
        if value.is_nil() {
            return Err(refuse(format!("module `{name}` returns nothing: end it with `return`")));
        }
        self.loaded_modules.borrow_mut().insert(name, value.clone());
        Ok(value)
    }

    fn check_load_limits(&self, name: &ModuleName) -> Result<(), String> {
        let loading = self.loading_stack.borrow();
        if let Some(at) = loading.iter().position(|other| other == name) {
            let circle = loading.iter().skip(at).chain([name]).map(ModuleName::as_str);
            let circle: Vec<&str> = circle.collect();
            return Err(format!("modules require each other in a cycle: {}", circle.join(" → ")));
        }
        if loading.len() >= MAX_MODULE_DEPTH {
            return Err(format!("modules require each other more than {MAX_MODULE_DEPTH} levels deep"));
        }
        if self.loaded_modules.borrow().len() >= MAX_MODULES {
            return Err(format!("a profile may load at most {MAX_MODULES} modules"));
        }
        Ok(())
    }
}
