//! Instruction costs of library functions that can run long between two checks of the limits.
//!
//! Here: the functions, their costs before a call, and replacements for those that would show an address.
//! Elsewhere: counting (`limits`), the available functions (`vm`). Invariant: no library call runs long
//! without being charged (`every_hostile_text_ends_with_an_error`).

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use crate::error::{LuaError, from_machine_error};
use crate::limits::InstructionMeter;
use crate::modules::ChunkTable;

/// The cost of a `pcall`, whether or not there is an error.
const PCALL_INSTRUCTIONS: u64 = 100;
/// Written in Lua, so that the called function counts towards the depth limit of Lua and not of the host.
const PCALL_WRAPPER: &str = "local call, charge = ... return function(...) charge() return call(...) end";
/// Bytes or table members that cost one instruction.
const BYTES_PER_INSTRUCTION: u64 = 16;
/// The most text that a profile may print.
const MAX_PRINTED_BYTES: usize = 4 * 1024;
/// The first five arguments. No charged function uses more.
type ChargedArguments = (Value, Value, Value, Value, Value);

/// The state needed to charge a call.
#[derive(Clone)]
pub(crate) struct ChargeContext {
    pub(crate) meter: Rc<InstructionMeter>,
    pub(crate) chunks: Rc<ChunkTable>,
    pub(crate) printed: Rc<RefCell<String>>,
}

/// The charged functions by library, with their costs.
const CHARGED_FUNCTIONS: [(&str, &[(&str, ChargeRule)]); 2] = [
    (
        "string",
        &[
            ("find", ChargeRule::Search),
            ("match", ChargeRule::Search),
            ("gmatch", ChargeRule::Search),
            ("gsub", ChargeRule::Search),
            ("split", ChargeRule::Search),
            ("rep", ChargeRule::Repeat),
            ("lower", ChargeRule::Length),
            ("upper", ChargeRule::Length),
            ("reverse", ChargeRule::Length),
        ],
    ),
    (
        "table",
        &[
            ("sort", ChargeRule::Sort),
            ("move", ChargeRule::Move),
            ("concat", ChargeRule::Length),
            ("insert", ChargeRule::Length),
            ("remove", ChargeRule::Length),
            ("find", ChargeRule::Length),
            ("clone", ChargeRule::Length),
            ("clear", ChargeRule::Length),
            ("create", ChargeRule::Create),
        ],
    ),
];

#[derive(Clone, Copy)]
enum ChargeRule {
    /// Length of the text times length of the pattern.
    Search,
    /// Length of the result.
    Repeat,
    /// Length of the first argument.
    Length,
    /// Length of the table times its binary logarithm.
    Sort,
    /// Distance between the second and the third argument.
    Move,
    /// The value of the first argument.
    Create,
}

impl ChargeRule {
    fn instructions(self, arguments: &ChargedArguments) -> u64 {
        let (first, second, third, ..) = arguments;
        let steps = match self {
            ChargeRule::Search => {
                value_length(first).saturating_add(1).saturating_mul(value_length(second).saturating_add(1))
            }
            ChargeRule::Repeat => value_length(first).saturating_mul(value_as_count(second)),
            ChargeRule::Length => value_length(first),
            ChargeRule::Sort => {
                let length = value_length(first);
                length.saturating_mul(u64::from(u64::BITS - length.leading_zeros()))
            }
            ChargeRule::Move => value_as_count(third).saturating_sub(value_as_count(second)),
            ChargeRule::Create => value_as_count(first),
        };
        steps / BYTES_PER_INSTRUCTION
    }
}

fn value_length(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.as_bytes().len() as u64,
        Value::Table(table) => table.raw_len() as u64,
        _ => 0,
    }
}

fn value_as_count(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => u64::try_from(*number).unwrap_or_default(),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of floats saturates"
        )]
        Value::Number(number) => *number as u64,
        _ => 0,
    }
}

/// Replaces each charged function by a wrapper.
pub(crate) fn install_charges(lua: &Lua, charging: &ChargeContext) -> mlua::Result<()> {
    let globals = lua.globals();
    for (library, functions) in CHARGED_FUNCTIONS {
        let library: Table = globals.raw_get(library)?;
        for (name, cost) in functions {
            let free: Function = library.raw_get(*name)?;
            let charging = charging.clone();
            let charged = lua.create_function(move |lua, arguments: ChargedArguments| {
                charging.charge_instructions(cost.instructions(&arguments))?;
                charging.call_charged(lua, &free, trim_arguments(arguments))
            })?;
            library.raw_set(*name, charged)?;
        }
    }
    for name in ["pcall", "xpcall"] {
        let charging = charging.clone();
        let charge = lua.create_function(move |_, ()| charging.charge_instructions(PCALL_INSTRUCTIONS))?;
        let wrap = lua.load(PCALL_WRAPPER).set_name("=caught").into_function()?;
        let caught: Function = wrap.call((globals.raw_get::<Function>(name)?, charge))?;
        globals.raw_set(name, caught)?;
    }
    let plain: Function = globals.raw_get("tostring")?;
    let string: Table = globals.raw_get("string")?;
    string.raw_set("format", charged_format(lua, charging, string.raw_get("format")?)?)?;
    globals.raw_set("print", capture_print(lua, charging, plain.clone())?)?;
    let charging = charging.clone();
    let tostring = lua.create_function(move |lua, printed_value: Value| {
        charging.value_to_text(lua, &plain, &printed_value)
    })?;
    globals.raw_set("tostring", tostring)
}

impl ChargeContext {
    fn charge_instructions(&self, instructions: u64) -> mlua::Result<()> {
        self.meter.charge_instructions(instructions).map_err(mlua::Error::external)
    }

    /// Calls a library function. Its errors name the line of the script: the library sees only the wrapper.
    fn call_charged(
        &self,
        lua: &Lua,
        function: &Function,
        arguments: MultiValue,
    ) -> mlua::Result<MultiValue> {
        function.call::<MultiValue>(arguments).map_err(|e| match &e {
            mlua::Error::RuntimeError(_) => {
                let told = from_machine_error(&e, &self.chunks);
                match told.line {
                    Some(_) => mlua::Error::external(told),
                    None => LuaError::at_current_line(lua, &self.chunks, told.message),
                }
            }
            _ => e,
        })
    }

    /// Returns the text of a value without memory addresses.
    fn value_to_text(&self, lua: &Lua, plain: &Function, printed_value: &Value) -> mlua::Result<Value> {
        let word = match printed_value {
            Value::Table(table) if !has_tostring(table) => "table".to_owned(),
            Value::Function(_) | Value::Thread(_) | Value::UserData(_) | Value::LightUserData(_) => {
                printed_value.type_name().to_owned()
            }
            Value::Error(error) => from_machine_error(error, &self.chunks).to_string(),
            _ => {
                let text = self.call_charged(lua, plain, MultiValue::from_iter([printed_value.clone()]))?;
                return Ok(text.into_iter().next().unwrap_or(Value::Nil));
            }
        };
        lua.create_string(word).map(Value::String)
    }
}

/// Returns whether a table defines `__tostring`.
fn has_tostring(table: &Table) -> bool {
    table.metatable().is_some_and(|meta| !matches!(meta.raw_get("__tostring"), Ok(Value::Nil) | Err(_)))
}

/// Removes absent arguments. Some functions distinguish an absent argument from nil.
fn trim_arguments((a, b, c, d, e): ChargedArguments) -> MultiValue {
    let mut given = vec![a, b, c, d, e];
    while given.last().is_some_and(Value::is_nil) {
        given.pop();
    }
    MultiValue::from_iter(given)
}

fn charged_format(lua: &Lua, charging: &ChargeContext, free: Function) -> mlua::Result<Function> {
    let charging = charging.clone();
    let plain: Function = lua.globals().raw_get("tostring")?;
    lua.create_function(move |lua, arguments: MultiValue| {
        charging
            .charge_instructions(arguments.iter().map(value_length).sum::<u64>() / BYTES_PER_INSTRUCTION)?;
        let mut told = Vec::with_capacity(arguments.len());
        for argument in arguments {
            told.push(match argument {
                Value::Table(_) | Value::Function(_) | Value::UserData(_) | Value::Error(_) => {
                    charging.value_to_text(lua, &plain, &argument)?
                }
                plain => plain,
            });
        }
        charging.call_charged(lua, &free, MultiValue::from_iter(told))
    })
}

/// Keeps the printed text up to the limit instead of printing it.
fn capture_print(lua: &Lua, charging: &ChargeContext, plain: Function) -> mlua::Result<Function> {
    let charging = charging.clone();
    lua.create_function(move |lua, arguments: MultiValue| {
        let mut line = String::new();
        for (argument, number) in arguments.iter().zip(0..) {
            let text = charging.value_to_text(lua, &plain, argument)?;
            let text = text.as_string().map(LuaString::to_string_lossy).unwrap_or_default();
            charging.charge_instructions(text.len() as u64 / BYTES_PER_INSTRUCTION)?;
            if number > 0 {
                line.push('\t');
            }
            line.push_str(&text);
        }
        let mut printed = charging.printed.borrow_mut();
        let room = MAX_PRINTED_BYTES.saturating_sub(printed.len());
        let kept = line.chars().scan(0, |used, c| {
            *used += c.len_utf8();
            (*used < room).then_some(c)
        });
        printed.extend(kept);
        if printed.len() < MAX_PRINTED_BYTES {
            printed.push('\n');
        }
        Ok(())
    })
}
