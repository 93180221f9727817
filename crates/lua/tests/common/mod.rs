//! Evaluating in tests: on a thread with the stack that it needs, with a clock.
#![expect(clippy::disallowed_methods, reason = "tests have the clock that the crate itself does not")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use minke_lua::{Bounds, LuaError, Module, ModuleName, Modules, Recipe, Source};

pub(crate) const FILE: usize = minke_lua::FILE_BYTES;
/// Fewer than usual, so that many texts can be tried.
const INSTRUCTIONS: u64 = 400_000;
/// As the page has it.
const BACKSTOP: Duration = Duration::from_secs(2);

/// What an evaluation gave, and how long it took.
pub(crate) struct Given {
    pub(crate) result: Result<Recipe, LuaError>,
    pub(crate) took: Duration,
}

struct Listed(BTreeMap<String, String>);

impl Modules for Listed {
    fn module(&self, name: &ModuleName) -> Result<Option<Module>, String> {
        let text = self.0.get(name.as_str()).cloned();
        Ok(text.map(|text| Module { file: format!("{name}.lua"), text }))
    }
}

pub(crate) fn evaluate(text: &str) -> Given {
    bounded(text, &[], INSTRUCTIONS)
}

/// With as many instructions as profiles have.
pub(crate) fn evaluate_long(text: &str) -> Given {
    bounded(text, &[], minke_lua::INSTRUCTIONS)
}

pub(crate) fn with_modules(text: &str, modules: &[(&str, &str)]) -> Given {
    bounded(text, modules, INSTRUCTIONS)
}

fn bounded(text: &str, modules: &[(&str, &str)], instructions: u64) -> Given {
    let text = text.to_owned();
    let modules: BTreeMap<String, String> =
        modules.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let work = move || {
        let begin = Instant::now();
        let usual = Bounds::usual(Rc::new(move || begin.elapsed() > BACKSTOP));
        let bounds = Bounds { instructions, ..usual };
        let source = Source { name: "hostile.lua".to_owned(), text };
        let result = minke_lua::evaluate(source, Rc::new(Listed(modules)), &bounds);
        Given { result, took: begin.elapsed() }
    };
    let thread = std::thread::Builder::new().stack_size(minke_lua::STACK_BYTES).spawn(work);
    thread.expect("a thread").join().expect("an evaluation does not panic")
}

/// The most memory that this process ever held, where the kernel tells.
pub(crate) fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
