//! The machine: one for each evaluation, with what profiles may use and nothing else.
//!
//! Here: making it, running a text in it, taking its recipe. Elsewhere: counting (`meter`, `charges`), the host's modules
//! (`host`), other texts (`modules`).
//! Invariant: what a script can reach is listed here (`a_script_reaches_what_is_listed_and_nothing_else`).

use std::cell::RefCell;
use std::rc::Rc;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};

use crate::charges::{self, Charging};
use crate::error::{LuaError, told};
use crate::host::Host;
use crate::meter::{Bounds, Meter};
use crate::modules::{Chunks, Loader, Module, Modules};
use crate::recipe::Recipe;

/// What of the language itself is there. No `load`, no environment of somebody else, nothing of the garbage collector.
const BASE: [&str; 24] = [
    "_G",
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "require",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "utf8",
    "xpcall",
];
/// What `require` costs beside what the module does.
const REQUIRE_INSTRUCTIONS: u64 = 1_000;

/// A profile's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// As errors call it: a path, or `builtin:coder`.
    pub name: String,
    pub text: String,
}

/// Evaluates a profile. Needs a thread with [`crate::STACK_BYTES`] of stack.
pub fn evaluate(source: Source, modules: Rc<dyn Modules>, bounds: &Bounds) -> Result<Recipe, LuaError> {
    let chunks = Rc::new(Chunks::default());
    let Source { name, text } = source;
    let without_line = |message: String| LuaError { file: name.clone(), line: None, message };
    let number = chunks
        .add(Module { file: name.clone(), text: text.clone() })
        .map_err(|why| without_line(format!("the profile is too long: {why}")))?;
    let meter = Meter::new(bounds);
    let machine = Machine::make(bounds, &meter, &chunks, modules).map_err(|e| told(&e, &chunks))?;
    let returned = chunk(&machine.lua, number, &text).and_then(|chunk| chunk.call::<Value>(()));
    // A text may have caught the error and gone on.
    if let Some(stop) = meter.reached() {
        let place = returned.err().map(|e| told(&e, &chunks));
        let line = place.as_ref().and_then(|place| place.line);
        return Err(LuaError {
            file: place.map_or(name, |place| place.file),
            line,
            message: stop.to_string(),
        });
    }
    let returned = returned.map_err(|e| told(&e, &chunks))?;
    let mut recipe = machine.host.recipe(&returned).ok_or_else(|| {
        without_line(format!(
            "the profile returns a {}: it ends with `return profile {{ … }}`, where profile is \
             require(\"minke.profile\")",
            returned.type_name()
        ))
    })?;
    recipe.printed = std::mem::take(&mut *machine.printed.borrow_mut());
    Ok(recipe)
}

struct Machine {
    lua: Lua,
    host: Rc<Host>,
    printed: Rc<RefCell<String>>,
}

impl Machine {
    fn make(
        bounds: &Bounds,
        meter: &Rc<Meter>,
        chunks: &Rc<Chunks>,
        modules: Rc<dyn Modules>,
    ) -> mlua::Result<Machine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.set_memory_limit(bounds.memory)?;
        let printed = Rc::new(RefCell::new(String::new()));
        let charging =
            Charging { meter: Rc::clone(meter), chunks: Rc::clone(chunks), printed: Rc::clone(&printed) };
        charges::install(&lua, &charging)?;
        let host = Host::new(&lua, Rc::clone(chunks))?;
        let loader = Loader::new(modules, Rc::clone(chunks), host.modules(&lua)?);
        let (meter_of_require, chunks_of_require) = (Rc::clone(meter), Rc::clone(chunks));
        let require = lua.create_function(move |lua, said: Value| {
            meter_of_require.charge(REQUIRE_INSTRUCTIONS).map_err(mlua::Error::external)?;
            match said.as_string().map(LuaString::to_string_lossy) {
                Some(name) => loader.require(lua, &name),
                None => Err(LuaError::here(lua, &chunks_of_require, "require takes the name of a module")),
            }
        })?;
        let globals = lua.globals();
        globals.raw_set("require", require)?;
        keep_only(&globals)?;
        // Chance is the same in every evaluation.
        let math: Table = globals.raw_get("math")?;
        math.raw_get::<Function>("randomseed")?.call::<()>(0)?;
        lua.sandbox(true)?;
        let meter = Rc::clone(meter);
        lua.set_interrupt(move |_| {
            meter.charge(1).map(|()| VmState::Continue).map_err(mlua::Error::external)
        });
        Ok(Machine { lua, host, printed })
    }
}

fn keep_only(globals: &Table) -> mlua::Result<()> {
    let mut others = Vec::new();
    for pair in globals.pairs::<Value, Value>() {
        let (name, _) = pair?;
        let kept = name.as_string().is_some_and(|name| {
            let name = name.to_string_lossy();
            name == "print" || BASE.contains(&name.as_str())
        });
        if !kept {
            others.push(name);
        }
    }
    others.into_iter().try_for_each(|name| globals.raw_set(name, Value::Nil))
}

/// A text, compiled. Its name towards the machine is its number, so that no file's name is taken for a line. Nothing is
/// optimized: what is built in would run without being counted, and a text could ask for it in its first comment, which
/// is why none is first.
pub(crate) fn chunk(lua: &Lua, number: usize, text: &str) -> mlua::Result<Function> {
    let compiler = Compiler::new().set_optimization_level(0).set_debug_level(1);
    lua.load(format!("do end {text}"))
        .set_name(format!("=#{number}"))
        .set_mode(ChunkMode::Text)
        .set_compiler(compiler)
        .into_function()
}
