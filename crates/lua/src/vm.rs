//! The Lua machine: one per evaluation, with only the functions that profiles may use.
//!
//! Here: creating it, running a text, returning its recipe. Elsewhere: counting (`limits`,
//! `instruction_costs`), the modules of the host (`host_modules`), other texts (`modules`). Invariant: a
//! script can reach only the functions listed here (`a_script_reaches_what_is_listed_and_nothing_else`).

use std::cell::RefCell;
use std::rc::Rc;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};

use crate::error::{LuaError, from_machine_error};
use crate::host_modules::HostModules;
use crate::instruction_costs::{self, ChargeContext};
use crate::limits::{EvaluationLimits, InstructionMeter};
use crate::modules::{ChunkTable, ModuleLoader, ModuleProvider, ModuleSource};
use crate::recipe::Recipe;

/// The available base functions. `load`, access to other environments and the garbage collector are missing.
const BASE_FUNCTIONS: [&str; 24] = [
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
/// The cost of `require`, in addition to the module itself.
const REQUIRE_INSTRUCTIONS: u64 = 1_000;

/// The text of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileSource {
    /// The name in error messages: a path, or `builtin:coder`.
    pub name: String,
    pub text: String,
}

/// Evaluates a profile. The calling thread needs [`crate::STACK_BYTES`] of stack.
pub fn evaluate(
    source: ProfileSource,
    modules: Rc<dyn ModuleProvider>,
    bounds: &EvaluationLimits,
) -> Result<Recipe, LuaError> {
    let chunks = Rc::new(ChunkTable::default());
    let ProfileSource { name, text } = source;
    let without_line = |message: String| LuaError { file: name.clone(), line: None, message };
    let number = chunks
        .add_chunk(ModuleSource { file: name.clone(), text: text.clone() })
        .map_err(|why| without_line(format!("the profile is too long: {why}")))?;
    let meter = InstructionMeter::new(bounds);
    let machine =
        LuaMachine::create(bounds, &meter, &chunks, modules).map_err(|e| from_machine_error(&e, &chunks))?;
    let returned = compile_chunk(&machine.lua, number, &text).and_then(|chunk| chunk.call::<Value>(()));
    // The script may have caught the error and continued.
    if let Some(stop) = meter.exceeded_limit() {
        let location = returned.err().map(|e| from_machine_error(&e, &chunks));
        let line = location.as_ref().and_then(|place| place.line);
        return Err(LuaError {
            file: location.map_or(name, |place| place.file),
            line,
            message: stop.to_string(),
        });
    }
    let returned = returned.map_err(|e| from_machine_error(&e, &chunks))?;
    let mut recipe = machine.host.returned_recipe(&returned).ok_or_else(|| {
        without_line(format!(
            "the profile returns a {}: it ends with `return profile {{ … }}`, where profile is \
             require(\"minke.profile\")",
            returned.type_name()
        ))
    })?;
    recipe.printed = std::mem::take(&mut *machine.printed.borrow_mut());
    Ok(recipe)
}

struct LuaMachine {
    lua: Lua,
    host: Rc<HostModules>,
    printed: Rc<RefCell<String>>,
}

impl LuaMachine {
    fn create(
        bounds: &EvaluationLimits,
        meter: &Rc<InstructionMeter>,
        chunks: &Rc<ChunkTable>,
        modules: Rc<dyn ModuleProvider>,
    ) -> mlua::Result<LuaMachine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.set_memory_limit(bounds.memory)?;
        let printed = Rc::new(RefCell::new(String::new()));
        let charging = ChargeContext {
            meter: Rc::clone(meter),
            chunks: Rc::clone(chunks),
            printed: Rc::clone(&printed),
        };
        instruction_costs::install_charges(&lua, &charging)?;
        let host = HostModules::new(&lua, Rc::clone(chunks))?;
        let loader = ModuleLoader::new(modules, Rc::clone(chunks), host.create_modules(&lua)?);
        let (meter_of_require, chunks_of_require) = (Rc::clone(meter), Rc::clone(chunks));
        let require = lua.create_function(move |lua, said: Value| {
            meter_of_require.charge_instructions(REQUIRE_INSTRUCTIONS).map_err(mlua::Error::external)?;
            match said.as_string().map(LuaString::to_string_lossy) {
                Some(name) => loader.load_required(lua, &name),
                None => Err(LuaError::at_current_line(
                    lua,
                    &chunks_of_require,
                    "require expects the name of a module",
                )),
            }
        })?;
        let globals = lua.globals();
        globals.raw_set("require", require)?;
        remove_unlisted_globals(&globals)?;
        // Use the same random seed in every evaluation.
        let math: Table = globals.raw_get("math")?;
        math.raw_get::<Function>("randomseed")?.call::<()>(0)?;
        lua.sandbox(true)?;
        let meter = Rc::clone(meter);
        lua.set_interrupt(move |_| {
            meter.charge_instructions(1).map(|()| VmState::Continue).map_err(mlua::Error::external)
        });
        Ok(LuaMachine { lua, host, printed })
    }
}

fn remove_unlisted_globals(globals: &Table) -> mlua::Result<()> {
    let mut others = Vec::new();
    for pair in globals.pairs::<Value, Value>() {
        let (name, _) = pair?;
        let kept = name.as_string().is_some_and(|name| {
            let name = name.to_string_lossy();
            name == "print" || BASE_FUNCTIONS.contains(&name.as_str())
        });
        if !kept {
            others.push(name);
        }
    }
    others.into_iter().try_for_each(|name| globals.raw_set(name, Value::Nil))
}

/// Compiles a text. Its chunk name is a number, so that a file name cannot be mistaken for a position.
/// Optimization is off: inlined builtins would run without being counted. A leading comment could enable it,
/// so a prefix prevents one.
pub(crate) fn compile_chunk(lua: &Lua, number: usize, text: &str) -> mlua::Result<Function> {
    let compiler = Compiler::new().set_optimization_level(0).set_debug_level(1);
    lua.load(format!("do end {text}"))
        .set_name(format!("=#{number}"))
        .set_mode(ChunkMode::Text)
        .set_compiler(compiler)
        .into_function()
}
