//! Charges: functions of the libraries that can run long between two looks at the meter.
//!
//! Here: which they are, what they cost before they begin, and the ones that would show an address. Elsewhere: counting
//! (`meter`), what is offered at all (`vm`).
//! Invariant: no call of a library takes long without being paid for (`every_hostile_text_ends_with_an_error`).

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use crate::error::{LuaError, told};
use crate::meter::Meter;
use crate::modules::Chunks;

/// What it costs to be ready for an error, and to have one.
const CAUGHT_INSTRUCTIONS: u64 = 100;
/// In the language itself, so that what is called is not called from outside, where its depth has another bound.
const CAUGHT: &str = "local call, charge = ... return function(...) charge() return call(...) end";
/// Bytes or members that count as one instruction.
const PER_INSTRUCTION: u64 = 16;
/// The most that a profile prints.
const PRINTED_BYTES: usize = 4 * 1024;
/// Arguments that count: none of the charged functions reads more.
type Arguments = (Value, Value, Value, Value, Value);

/// What is needed to charge.
#[derive(Clone)]
pub(crate) struct Charging {
    pub(crate) meter: Rc<Meter>,
    pub(crate) chunks: Rc<Chunks>,
    pub(crate) printed: Rc<RefCell<String>>,
}

/// Functions by their library, with what a call costs.
const CHARGED: [(&str, &[(&str, Cost)]); 2] = [
    (
        "string",
        &[
            ("find", Cost::Search),
            ("match", Cost::Search),
            ("gmatch", Cost::Search),
            ("gsub", Cost::Search),
            ("split", Cost::Search),
            ("rep", Cost::Repeat),
            ("lower", Cost::Length),
            ("upper", Cost::Length),
            ("reverse", Cost::Length),
        ],
    ),
    (
        "table",
        &[
            ("sort", Cost::Sort),
            ("move", Cost::Move),
            ("concat", Cost::Length),
            ("insert", Cost::Length),
            ("remove", Cost::Length),
            ("find", Cost::Length),
            ("clone", Cost::Length),
            ("clear", Cost::Length),
            ("create", Cost::Create),
        ],
    ),
];

#[derive(Clone, Copy)]
enum Cost {
    /// Bytes of the text times bytes of the pattern.
    Search,
    /// Bytes of the result.
    Repeat,
    /// Length of the first argument.
    Length,
    /// Its length, times how often it can be halved.
    Sort,
    /// The distance between the second and the third argument.
    Move,
    /// The first argument itself.
    Create,
}

impl Cost {
    fn of(self, arguments: &Arguments) -> u64 {
        let (first, second, third, ..) = arguments;
        let steps = match self {
            Cost::Search => length(first).saturating_add(1).saturating_mul(length(second).saturating_add(1)),
            Cost::Repeat => length(first).saturating_mul(number(second)),
            Cost::Length => length(first),
            Cost::Sort => {
                let length = length(first);
                length.saturating_mul(u64::from(u64::BITS - length.leading_zeros()))
            }
            Cost::Move => number(third).saturating_sub(number(second)),
            Cost::Create => number(first),
        };
        steps / PER_INSTRUCTION
    }
}

fn length(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.as_bytes().len() as u64,
        Value::Table(table) => table.raw_len() as u64,
        _ => 0,
    }
}

fn number(value: &Value) -> u64 {
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

/// Puts a charged function in the place of each that needs one.
pub(crate) fn install(lua: &Lua, charging: &Charging) -> mlua::Result<()> {
    let globals = lua.globals();
    for (library, functions) in CHARGED {
        let library: Table = globals.raw_get(library)?;
        for (name, cost) in functions {
            let free: Function = library.raw_get(*name)?;
            let charging = charging.clone();
            let charged = lua.create_function(move |lua, arguments: Arguments| {
                charging.charge(cost.of(&arguments))?;
                charging.call(lua, &free, trimmed(arguments))
            })?;
            library.raw_set(*name, charged)?;
        }
    }
    for name in ["pcall", "xpcall"] {
        let charging = charging.clone();
        let charge = lua.create_function(move |_, ()| charging.charge(CAUGHT_INSTRUCTIONS))?;
        let wrap = lua.load(CAUGHT).set_name("=caught").into_function()?;
        let caught: Function = wrap.call((globals.raw_get::<Function>(name)?, charge))?;
        globals.raw_set(name, caught)?;
    }
    let plain: Function = globals.raw_get("tostring")?;
    let string: Table = globals.raw_get("string")?;
    string.raw_set("format", format(lua, charging, string.raw_get("format")?)?)?;
    globals.raw_set("print", print(lua, charging, plain.clone())?)?;
    let charging = charging.clone();
    let tostring = lua.create_function(move |lua, said: Value| charging.text(lua, &plain, &said))?;
    globals.raw_set("tostring", tostring)
}

impl Charging {
    fn charge(&self, instructions: u64) -> mlua::Result<()> {
        self.meter.charge(instructions).map_err(mlua::Error::external)
    }

    /// An error of the library names the script's line: the library itself sees only us.
    fn call(&self, lua: &Lua, function: &Function, arguments: MultiValue) -> mlua::Result<MultiValue> {
        function.call::<MultiValue>(arguments).map_err(|e| match &e {
            mlua::Error::RuntimeError(_) => {
                let told = told(&e, &self.chunks);
                match told.line {
                    Some(_) => mlua::Error::external(told),
                    None => LuaError::here(lua, &self.chunks, told.message),
                }
            }
            _ => e,
        })
    }

    /// The text of a value, without the addresses of things.
    fn text(&self, lua: &Lua, plain: &Function, said: &Value) -> mlua::Result<Value> {
        let word = match said {
            Value::Table(table) if !speaks(table) => "table".to_owned(),
            Value::Function(_) | Value::Thread(_) | Value::UserData(_) | Value::LightUserData(_) => {
                said.type_name().to_owned()
            }
            Value::Error(error) => told(error, &self.chunks).to_string(),
            _ => {
                let text = self.call(lua, plain, MultiValue::from_iter([said.clone()]))?;
                return Ok(text.into_iter().next().unwrap_or(Value::Nil));
            }
        };
        lua.create_string(word).map(Value::String)
    }
}

/// Whether a table has words of its own.
fn speaks(table: &Table) -> bool {
    table.metatable().is_some_and(|meta| !matches!(meta.raw_get("__tostring"), Ok(Value::Nil) | Err(_)))
}

/// Without what was not given: to some functions an absent argument and nil are two things.
fn trimmed((a, b, c, d, e): Arguments) -> MultiValue {
    let mut given = vec![a, b, c, d, e];
    while given.last().is_some_and(Value::is_nil) {
        given.pop();
    }
    MultiValue::from_iter(given)
}

fn format(lua: &Lua, charging: &Charging, free: Function) -> mlua::Result<Function> {
    let charging = charging.clone();
    let plain: Function = lua.globals().raw_get("tostring")?;
    lua.create_function(move |lua, arguments: MultiValue| {
        charging.charge(arguments.iter().map(length).sum::<u64>() / PER_INSTRUCTION)?;
        let mut told = Vec::with_capacity(arguments.len());
        for argument in arguments {
            told.push(match argument {
                Value::Table(_) | Value::Function(_) | Value::UserData(_) | Value::Error(_) => {
                    charging.text(lua, &plain, &argument)?
                }
                plain => plain,
            });
        }
        charging.call(lua, &free, MultiValue::from_iter(told))
    })
}

/// Nothing is printed: what would be is kept for whoever asks, as far as it is short.
fn print(lua: &Lua, charging: &Charging, plain: Function) -> mlua::Result<Function> {
    let charging = charging.clone();
    lua.create_function(move |lua, arguments: MultiValue| {
        let mut line = String::new();
        for (argument, number) in arguments.iter().zip(0..) {
            let text = charging.text(lua, &plain, argument)?;
            let text = text.as_string().map(LuaString::to_string_lossy).unwrap_or_default();
            charging.charge(text.len() as u64 / PER_INSTRUCTION)?;
            if number > 0 {
                line.push('\t');
            }
            line.push_str(&text);
        }
        let mut printed = charging.printed.borrow_mut();
        let room = PRINTED_BYTES.saturating_sub(printed.len());
        let kept = line.chars().scan(0, |used, c| {
            *used += c.len_utf8();
            (*used < room).then_some(c)
        });
        printed.extend(kept);
        if printed.len() < PRINTED_BYTES {
            printed.push('\n');
        }
        Ok(())
    })
}
