//! `pod`: the process and its bounds.

use std::collections::BTreeMap;

use minke_record::PodName;
use serde_json::{Value, json};

use crate::form::{Count, Form, Refused, Seconds, Text};
use crate::key::section;

section! {
    /// The process of a pod.
    PodSection at "pod" {
        /// The pod's name, with a number if a live pod has it; if absent from the profile or the directory. Never inherited.
        name: Option<String> = None, NameForm, Override, Nothing, false;
        /// Seconds without client, child, command or run after which the process ends; 0 = never.
        idle_exit: u64 = 30 * 60, Seconds, Override, Nothing, false;
        /// A directory whose `catalog.toml` is the highest layer of the texts that are said to models.
        prompt_pack: Option<String> = None, Directory, Override, Nothing, false;
    }
    besides {
        limits: Limits;
        /// Texts in the place of the catalog's own, as they were found when the pod began; set by the program itself.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        catalog: BTreeMap<String, String>;
    }
}

section! {
    /// How many of each there may be.
    Limits at "pod.limits" {
        /// Accepted inputs that wait, and notes from `notify` that wait.
        queue: u64 = 64, Count, Override, Lower, false;
        /// Alerts kept for late clients.
        alerts: u64 = 512, Count, Override, Lower, false;
        /// Waiting methods of one client.
        methods: u64 = 64, Count, Override, Lower, false;
        /// Of the tree: how many pods may be above one.
        depth: u64 = 4, Count, Override, Lower, false;
        /// Live children of one pod.
        children: u64 = 16, Count, Override, Lower, false;
        /// Live pods of one user.
        pods_per_user: u64 = 256, Count, Override, Lower, false;
    }
    besides {}
}

/// The path of a directory.
pub(crate) struct Directory;

impl Form for Directory {
    fn word() -> String {
        "the path of a directory".to_owned()
    }

    fn schema() -> Value {
        Text::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        Text::read(value)
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        match value {
            Value::String(path) => each(path),
            _ => Ok(()),
        }
    }
}

/// A name that a pod can have.
pub(crate) struct NameForm;

impl Form for NameForm {
    fn word() -> String {
        "a name of 1 to 40 letters, digits, spaces and hyphens, a letter or digit first".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[\\p{L}\\p{N}][\\p{L}\\p{M}\\p{N} -]{0,39}$" })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        value.as_str().ok_or(None)?.parse::<PodName>().map_err(|_| None)?;
        Ok(value.clone())
    }
}
