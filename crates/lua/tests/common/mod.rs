//! Evaluates texts on a thread with the required stack and a clock.
#![expect(clippy::disallowed_methods, reason = "tests provide the clock")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use minke_lua::{
    EvaluationLimits, LuaError, ModuleName, ModuleProvider, ModuleSource, ProfileSource, Recipe,
};

pub(crate) const FILE_BYTES: usize = minke_lua::MAX_FILE_BYTES;
/// Fewer than the default, so that many texts can be tested.
const INSTRUCTIONS: u64 = 400_000;
/// The documented time limit.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The result of an evaluation and its duration.
pub(crate) struct EvaluationResult {
    pub(crate) result: Result<Recipe, LuaError>,
    pub(crate) duration: Duration,
}

struct ListedModules(BTreeMap<String, String>);

impl ModuleProvider for ListedModules {
    fn load_module(&self, name: &ModuleName) -> Result<Option<ModuleSource>, String> {
        let text = self.0.get(name.as_str()).cloned();
        Ok(text.map(|text| ModuleSource { file: format!("{name}.lua"), text }))
    }
}

pub(crate) fn evaluate(text: &str) -> EvaluationResult {
    evaluate_with_limit(text, &[], INSTRUCTIONS)
}

/// Evaluates with the default instruction limit.
pub(crate) fn evaluate_with_full_limit(text: &str) -> EvaluationResult {
    evaluate_with_limit(text, &[], minke_lua::MAX_INSTRUCTIONS)
}

pub(crate) fn evaluate_with_modules(text: &str, modules: &[(&str, &str)]) -> EvaluationResult {
    evaluate_with_limit(text, modules, INSTRUCTIONS)
}

fn evaluate_with_limit(text: &str, modules: &[(&str, &str)], instructions: u64) -> EvaluationResult {
    let text = text.to_owned();
    let modules: BTreeMap<String, String> =
        modules.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let work = move || {
        let begin = Instant::now();
        let usual = EvaluationLimits::default_limits(Rc::new(move || begin.elapsed() > TIME_LIMIT));
        let bounds = EvaluationLimits { instructions, ..usual };
        let source = ProfileSource { name: "hostile.lua".to_owned(), text };
        let result = minke_lua::evaluate(source, Rc::new(ListedModules(modules)), &bounds);
        EvaluationResult { result, duration: begin.elapsed() }
    };
    let thread = std::thread::Builder::new().stack_size(minke_lua::STACK_BYTES).spawn(work);
    thread.expect("a thread").join().expect("an evaluation does not panic")
}

/// Returns the peak memory of this process, if the kernel reports it.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
