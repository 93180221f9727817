//! The modules of the host, which are the only interface of a profile to Minke.
//!
//! Here: `minke.profile`, `minke.scope`, `minke.models` and `minke.compact`. Each returns plain values and
//! has no effect. Elsewhere: `require` (`modules`), the allowed content of a recipe (`fields`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value as Said};
use serde_json::{Map, Value};

use crate::error::{LuaError, current_place};
use crate::fields;
use crate::key_lines;
use crate::modules::ChunkTable;
use crate::recipe::{Recipe, WorkspaceAccess, nearest_line};
use crate::table_reader::{RecipeFieldError, TableReader};

/// How often one profile may call `profile`.
const MAX_RECIPES: usize = 16;
/// The longest model reference in characters.
const MAX_REFERENCE_CHARS: usize = 200;

/// The state shared by the functions of the host.
pub(crate) struct HostModules {
    chunks: Rc<ChunkTable>,
    /// The recipes of all `profile` calls, indexed by the number in the returned table.
    recipes: RefCell<Vec<Recipe>>,
    /// Metatables that identify tables of the host. Scripts cannot access them.
    metatables: HostMetatables,
}

/// Metatables that identify the origin of a table.
struct HostMetatables {
    profile: Table,
    scope: Table,
}

impl HostModules {
    pub(crate) fn new(lua: &Lua, chunks: Rc<ChunkTable>) -> mlua::Result<Rc<HostModules>> {
        let metatables = HostMetatables { profile: create_metatable(lua)?, scope: create_metatable(lua)? };
        Ok(Rc::new(HostModules { chunks, recipes: RefCell::default(), metatables }))
    }

    /// Returns all modules by name.
    pub(crate) fn create_modules(
        self: &Rc<HostModules>,
        lua: &Lua,
    ) -> mlua::Result<BTreeMap<&'static str, Table>> {
        Ok([
            ("minke.profile", self.create_profile_module(lua)?),
            ("minke.scope", self.create_scope_module(lua)?),
            ("minke.models", self.create_models_module(lua)?),
            ("minke.compact", self.create_compact_module(lua)?),
        ]
        .into())
    }

    /// Returns the recipe that the profile returned.
    pub(crate) fn returned_recipe(&self, returned: &Said) -> Option<Recipe> {
        let Said::Table(table) = returned else { return None };
        if table.metatable().as_ref() != Some(&self.metatables.profile) {
            return None;
        }
        let number: usize = table.raw_get("number").ok()?;
        self.recipes.borrow().get(number).cloned()
    }

    /// The module itself is callable: `require("minke.profile") { … }`.
    fn create_profile_module(self: &Rc<HostModules>, lua: &Lua) -> mlua::Result<Table> {
        let host = Rc::clone(self);
        let call =
            lua.create_function(move |lua, (_, argument): (Said, Said)| host.call_profile(lua, &argument))?;
        let meta = create_metatable(lua)?;
        meta.raw_set("__call", call)?;
        let module = lua.create_table()?;
        module.set_metatable(Some(meta))?;
        module.set_readonly(true);
        Ok(module)
    }

    fn call_profile(&self, lua: &Lua, argument: &Said) -> mlua::Result<Table> {
        let Said::Table(table) = argument else {
            let message = format!("profile is called with a {}: write profile {{ … }}", argument.type_name());
            return Err(LuaError::at_current_line(lua, &self.chunks, message));
        };
        let number = self.recipes.borrow().len();
        if number >= MAX_RECIPES {
            let message = format!("profile is called more than {MAX_RECIPES} times");
            return Err(LuaError::at_current_line(lua, &self.chunks, message));
        }
        let (file, line) = current_place(lua, &self.chunks);
        let mut lines =
            self.chunks.chunk_text(&file).map(|text| key_lines::key_lines(&text)).unwrap_or_default();
        lines.extend(line.map(|line| (String::new(), line)));
        let recipe = self.read_recipe(table, file.clone(), &lines).map_err(|refused| {
            let line = nearest_line(&lines, &refused.path);
            mlua::Error::external(LuaError { file, line, message: refused.message })
        })?;
        self.recipes.borrow_mut().push(recipe);
        let answer = lua.create_table()?;
        answer.raw_set("number", number)?;
        answer.set_metatable(Some(self.metatables.profile.clone()))?;
        answer.set_readonly(true);
        Ok(answer)
    }

    fn read_recipe(
        &self,
        table: &Table,
        file: String,
        lines: &BTreeMap<String, u32>,
    ) -> Result<Recipe, RecipeFieldError> {
        let mut reading = TableReader::new();
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
        for (field, argument) in reading.read_pairs("", table)? {
            fields::check_field_name(&field)?;
            if field == "scope" {
                recipe.scope = Some(self.call_scope(&argument)?);
                continue;
            }
            let value = reading.read_value(&field, &argument, 0)?;
            match field.as_str() {
                "slug" => recipe.slug = Some(fields::parse_slug(&value)?),
                "description" => recipe.description = Some(fields::parse_description(&value)?),
                "extends" => recipe.extends = Some(fields::parse_extends(&value)?),
                _ => {
                    check_section(&field, &value)?;
                    fields::check_value(&field, &value)?;
                    recipe.fields.insert(field, value);
                }
            }
        }
        Ok(recipe)
    }

    fn call_scope(&self, argument: &Said) -> Result<WorkspaceAccess, RecipeFieldError> {
        let ours = match argument {
            Said::Table(table) => (table.metatable().as_ref() == Some(&self.metatables.scope))
                .then(|| table.raw_get::<String>("workspace").ok())
                .flatten(),
            _ => None,
        };
        match ours.as_deref() {
            Some("read") => Ok(WorkspaceAccess::Read),
            Some("write") => Ok(WorkspaceAccess::Write),
            _ => Err(RecipeFieldError::new(
                "scope",
                "`scope` is not given by rules in a profile: use scope.workspace_read() or scope.workspace_write() of \
                 require(\"minke.scope\")",
            )),
        }
    }

    fn create_scope_module(self: &Rc<HostModules>, lua: &Lua) -> mlua::Result<Table> {
        let module = lua.create_table()?;
        for (name, scope) in
            [("workspace_read", WorkspaceAccess::Read), ("workspace_write", WorkspaceAccess::Write)]
        {
            let host = Rc::clone(self);
            let give = lua.create_function(move |lua, ()| {
                let table = lua.create_table()?;
                table.raw_set("workspace", scope.as_str())?;
                table.set_metatable(Some(host.metatables.scope.clone()))?;
                table.set_readonly(true);
                Ok(table)
            })?;
            module.raw_set(name, give)?;
        }
        module.set_readonly(true);
        Ok(module)
    }

    fn create_models_module(self: &Rc<HostModules>, lua: &Lua) -> mlua::Result<Table> {
        let host = Rc::clone(self);
        let catalog = lua.create_function(move |lua, argument: Said| {
            let reference = argument.as_string().map(LuaString::to_string_lossy);
            let fits = |text: &String| {
                text.chars().count() <= MAX_REFERENCE_CHARS
                    && !text.contains(char::is_control)
                    && text
                        .split_once('/')
                        .is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
            };
            let Some(reference) = reference.filter(fits) else {
                let message = "models.catalog expects \"PROVIDER/MODEL\"; `minke models` lists them";
                return Err(LuaError::at_current_line(lua, &host.chunks, message));
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

    fn create_compact_module(self: &Rc<HostModules>, lua: &Lua) -> mlua::Result<Table> {
        let module = lua.create_table()?;
        for (name, unit) in [("ratio", ThresholdUnit::Percent), ("tokens", ThresholdUnit::Tokens)] {
            let host = Rc::clone(self);
            let give = lua.create_function(move |lua, argument: Said| {
                let refuse = |message: String| LuaError::at_current_line(lua, &host.chunks, message);
                let Said::Table(given) = argument else {
                    return Err(refuse(format!("compact.{name} expects {{ threshold = …, request = … }}")));
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
                                "compact.{name} accepts `threshold` and `request` and nothing else"
                            )));
                        }
                    };
                    let written = unit
                        .to_manifest_value(&value)
                        .ok_or_else(|| refuse(unit.expected_message(name, &key)))?;
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

/// The unit of a compaction threshold.
#[derive(Clone, Copy)]
enum ThresholdUnit {
    Percent,
    Tokens,
}

impl ThresholdUnit {
    /// Returns the value for the manifest: a share or a number of tokens.
    fn to_manifest_value(self, argument: &Said) -> Option<Value> {
        let number = argument.as_f64().or_else(|| argument.as_i64().map(|whole| whole as f64))?;
        match self {
            ThresholdUnit::Percent => {
                let percent = (number * 100.0).round();
                (1.0..=100.0).contains(&percent).then(|| Value::from(format!("{percent}%")))
            }
            ThresholdUnit::Tokens => {
                let whole = argument.as_i64().filter(|tokens| *tokens > 0)?;
                Some(Value::from(whole))
            }
        }
    }

    fn expected_message(self, name: &str, key: &str) -> String {
        match self {
            ThresholdUnit::Percent => {
                format!("`{key}` of compact.{name} must be a share of the context window, from 0.01 to 1")
            }
            ThresholdUnit::Tokens => format!("`{key}` of compact.{name} must be a whole number of tokens"),
        }
    }
}

/// Checks that a section is a table.
fn check_section(field: &str, value: &Value) -> Result<(), RecipeFieldError> {
    if value.is_object() {
        return Ok(());
    }
    let how = match field {
        "model" => "use models.catalog(\"PROVIDER/MODEL\") of require(\"minke.models\"), or a table",
        _ => "it is a section and needs a table",
    };
    Err(RecipeFieldError::new(field, format!("`{field}` has the wrong type: {how}")))
}

/// Creates a metatable that scripts can neither read nor set.
fn create_metatable(lua: &Lua) -> mlua::Result<Table> {
    let mark = lua.create_table()?;
    mark.raw_set("__metatable", "minke")?;
    Ok(mark)
}
