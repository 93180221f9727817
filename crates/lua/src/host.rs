//! The host's modules: everything that a profile can ask of us.
//!
//! Here: `minke.profile`, `minke.scope`, `minke.models` and `minke.compact`. Each gives plain values; none does anything.
//! Elsewhere: `require` (`modules`), what a recipe may hold (`fields`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value as Said};
use serde_json::{Map, Value};

use crate::error::{LuaError, place};
use crate::fields;
use crate::lines;
use crate::modules::Chunks;
use crate::reading::{Reading, Refused};
use crate::recipe::{Recipe, WorkspaceScope, line_of};

/// How often one text may call `profile`.
const RECIPES: usize = 16;
/// Letters of a model's reference.
const REFERENCE_CHARS: usize = 200;

/// What calls of the host's functions leave behind.
pub(crate) struct Host {
    chunks: Rc<Chunks>,
    /// What `profile` was called with, by the number in its answer.
    recipes: RefCell<Vec<Recipe>>,
    /// Tables of ours are known by these; no script can have them.
    marks: Marks,
}

/// Metatables that say where a table came from.
struct Marks {
    profile: Table,
    scope: Table,
}

impl Host {
    pub(crate) fn new(lua: &Lua, chunks: Rc<Chunks>) -> mlua::Result<Rc<Host>> {
        let marks = Marks { profile: mark(lua)?, scope: mark(lua)? };
        Ok(Rc::new(Host { chunks, recipes: RefCell::default(), marks }))
    }

    /// Every module by its name.
    pub(crate) fn modules(self: &Rc<Host>, lua: &Lua) -> mlua::Result<BTreeMap<&'static str, Table>> {
        Ok([
            ("minke.profile", self.profile_module(lua)?),
            ("minke.scope", self.scope_module(lua)?),
            ("minke.models", self.models_module(lua)?),
            ("minke.compact", self.compact_module(lua)?),
        ]
        .into())
    }

    /// The recipe that the text returned.
    pub(crate) fn recipe(&self, returned: &Said) -> Option<Recipe> {
        let Said::Table(table) = returned else { return None };
        if table.metatable().as_ref() != Some(&self.marks.profile) {
            return None;
        }
        let number: usize = table.raw_get("number").ok()?;
        self.recipes.borrow().get(number).cloned()
    }

    /// The module is called itself: `require("minke.profile") { … }`.
    fn profile_module(self: &Rc<Host>, lua: &Lua) -> mlua::Result<Table> {
        let host = Rc::clone(self);
        let call = lua.create_function(move |lua, (_, said): (Said, Said)| host.profile(lua, &said))?;
        let meta = mark(lua)?;
        meta.raw_set("__call", call)?;
        let module = lua.create_table()?;
        module.set_metatable(Some(meta))?;
        module.set_readonly(true);
        Ok(module)
    }

    fn profile(&self, lua: &Lua, said: &Said) -> mlua::Result<Table> {
        let Said::Table(table) = said else {
            let message = format!("profile is called with a {}: write profile {{ … }}", said.type_name());
            return Err(LuaError::here(lua, &self.chunks, message));
        };
        let number = self.recipes.borrow().len();
        if number >= RECIPES {
            let message = format!("profile is called more than {RECIPES} times");
            return Err(LuaError::here(lua, &self.chunks, message));
        }
        let (file, line) = place(lua, &self.chunks);
        let mut lines = self.chunks.text(&file).map(|text| lines::keys(&text)).unwrap_or_default();
        lines.extend(line.map(|line| (String::new(), line)));
        let recipe = self.read(table, file.clone(), &lines).map_err(|refused| {
            let line = line_of(&lines, &refused.path);
            mlua::Error::external(LuaError { file, line, message: refused.message })
        })?;
        self.recipes.borrow_mut().push(recipe);
        let answer = lua.create_table()?;
        answer.raw_set("number", number)?;
        answer.set_metatable(Some(self.marks.profile.clone()))?;
        answer.set_readonly(true);
        Ok(answer)
    }

    fn read(&self, table: &Table, file: String, lines: &BTreeMap<String, u32>) -> Result<Recipe, Refused> {
        let mut reading = Reading::new();
        let mut recipe = Recipe {
            file,
            slug: None,
            description: None,
            extends: None,
            scope: None,
            fields: Map::new(),
            lines: lines.clone(),
            printed: String::new(),
        };
        for (field, said) in reading.pairs("", table)? {
            fields::known(&field)?;
            if field == "scope" {
                recipe.scope = Some(self.scope(&said)?);
                continue;
            }
            let value = reading.value(&field, &said, 0)?;
            match field.as_str() {
                "slug" => recipe.slug = Some(fields::slug(&value)?),
                "description" => recipe.description = Some(fields::description(&value)?),
                "extends" => recipe.extends = Some(fields::extends(&value)?),
                _ => {
                    section(&field, &value)?;
                    fields::check(&field, &value)?;
                    recipe.fields.insert(field, value);
                }
            }
        }
        Ok(recipe)
    }

    fn scope(&self, said: &Said) -> Result<WorkspaceScope, Refused> {
        let ours = match said {
            Said::Table(table) => (table.metatable().as_ref() == Some(&self.marks.scope))
                .then(|| table.raw_get::<String>("workspace").ok())
                .flatten(),
            _ => None,
        };
        match ours.as_deref() {
            Some("read") => Ok(WorkspaceScope::Read),
            Some("write") => Ok(WorkspaceScope::Write),
            _ => Err(Refused::at(
                "scope",
                "`scope` is not given by rules in a profile: use scope.workspace_read() or scope.workspace_write() of \
                 require(\"minke.scope\")",
            )),
        }
    }

    fn scope_module(self: &Rc<Host>, lua: &Lua) -> mlua::Result<Table> {
        let module = lua.create_table()?;
        for (name, scope) in
            [("workspace_read", WorkspaceScope::Read), ("workspace_write", WorkspaceScope::Write)]
        {
            let host = Rc::clone(self);
            let give = lua.create_function(move |lua, ()| {
                let table = lua.create_table()?;
                table.raw_set("workspace", scope.as_str())?;
                table.set_metatable(Some(host.marks.scope.clone()))?;
                table.set_readonly(true);
                Ok(table)
            })?;
            module.raw_set(name, give)?;
        }
        module.set_readonly(true);
        Ok(module)
    }

    fn models_module(self: &Rc<Host>, lua: &Lua) -> mlua::Result<Table> {
        let host = Rc::clone(self);
        let catalog = lua.create_function(move |lua, said: Said| {
            let reference = said.as_string().map(LuaString::to_string_lossy);
            let fits = |text: &String| {
                text.chars().count() <= REFERENCE_CHARS
                    && !text.contains(char::is_control)
                    && text
                        .split_once('/')
                        .is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
            };
            let Some(reference) = reference.filter(fits) else {
                let message = "models.catalog takes \"PROVIDER/MODEL\"; `minke models` lists them";
                return Err(LuaError::here(lua, &host.chunks, message));
            };
            let table = lua.create_table()?;
            table.raw_set("ref", reference)?;
            Ok(table)
        })?;
        let module = lua.create_table()?;
        module.raw_set("catalog", catalog)?;
        module.set_readonly(true);
        Ok(module)
    }

    fn compact_module(self: &Rc<Host>, lua: &Lua) -> mlua::Result<Table> {
        let module = lua.create_table()?;
        for (name, unit) in [("ratio", Unit::Share), ("tokens", Unit::Tokens)] {
            let host = Rc::clone(self);
            let give = lua.create_function(move |lua, said: Said| {
                let refuse = |message: String| LuaError::here(lua, &host.chunks, message);
                let Said::Table(given) = said else {
                    return Err(refuse(format!("compact.{name} takes {{ threshold = …, request = … }}")));
                };
                let table = lua.create_table()?;
                for pair in given.pairs::<Said, Said>() {
                    let (key, value) = pair?;
                    let key = key.as_string().map(LuaString::to_string_lossy).unwrap_or_default();
                    let target = match key.as_str() {
                        "threshold" => "threshold",
                        "request" => "request_threshold",
                        _ => {
                            return Err(refuse(format!(
                                "compact.{name} has `threshold` and `request` and nothing else"
                            )));
                        }
                    };
                    let written = unit.written(&value).ok_or_else(|| refuse(unit.wants(name, &key)))?;
                    let value = match written {
                        Value::String(text) => Said::String(lua.create_string(text)?),
                        other => Said::Integer(other.as_i64().unwrap_or_default()),
                    };
                    table.raw_set(target, value)?;
                }
                Ok(table)
            })?;
            module.raw_set(name, give)?;
        }
        module.set_readonly(true);
        Ok(module)
    }
}

/// How a threshold of compaction is given.
#[derive(Clone, Copy)]
enum Unit {
    Share,
    Tokens,
}

impl Unit {
    /// As the manifest has it: a share in per cent, or a number of tokens.
    fn written(self, said: &Said) -> Option<Value> {
        let number = said.as_f64().or_else(|| said.as_i64().map(|whole| whole as f64))?;
        match self {
            Unit::Share => {
                let percent = (number * 100.0).round();
                (1.0..=100.0).contains(&percent).then(|| Value::from(format!("{percent}%")))
            }
            Unit::Tokens => {
                let whole = said.as_i64().filter(|tokens| *tokens > 0)?;
                Some(Value::from(whole))
            }
        }
    }

    fn wants(self, name: &str, key: &str) -> String {
        match self {
            Unit::Share => {
                format!("`{key}` of compact.{name} is a share of the context window, from 0.01 to 1")
            }
            Unit::Tokens => format!("`{key}` of compact.{name} is a whole number of tokens"),
        }
    }
}

/// Sections are tables.
fn section(field: &str, value: &Value) -> Result<(), Refused> {
    if value.is_object() {
        return Ok(());
    }
    let how = match field {
        "model" => "use models.catalog(\"PROVIDER/MODEL\") of require(\"minke.models\"), or a table",
        _ => "it is a section, so give it a table",
    };
    Err(Refused::at(field, format!("`{field}` has another kind of value: {how}")))
}

/// A metatable that scripts can neither see nor set.
fn mark(lua: &Lua) -> mlua::Result<Table> {
    let mark = lua.create_table()?;
    mark.raw_set("__metatable", "minke")?;
    Ok(mark)
}
