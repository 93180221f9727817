//! `pod`: the process and its limits.

use std::collections::BTreeMap;

use minke_record::PodName;
use serde_json::{Value, json};

use crate::form::{Count, Form, Refused, SecondsForm, TextForm};
use crate::key::section;

section! {
    /// The process of a pod.
    PodSection at "pod" {
        /// The pod's name, with a number if it is taken; the default comes from profile or directory. Never
        /// inherited.
        name: Option<String> = None, NameForm, Override, Nothing, false;
        /// Seconds without client, child, command or run after which the process exits; 0 = never.
        idle_exit: u64 = 30 * 60, SecondsForm, Override, Nothing, false;
        /// A directory whose `catalog.toml` is the highest layer of the texts for models.
        prompt_pack: Option<String> = None, DirectoryForm, Override, Nothing, false;
    }
    besides {
        limits: Limits;
        /// Texts that replace those of the catalog, as read at boot; set by the program itself.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        catalog: BTreeMap<String, String>;
    }
}

section! {
    /// Limits of the pod and the tree.
    Limits at "pod.limits" {
        /// Queued inputs, and pending notes from `notify`.
        queue: u64 = 64, Count, Override, Lower, false;
        /// Alerts stored for clients that connect later.
        alerts: u64 = 512, Count, Override, Lower, false;
        /// Pending methods of one client.
        methods: u64 = 64, Count, Override, Lower, false;
        /// Maximum number of ancestors of a pod.
        depth: u64 = 4, Count, Override, Lower, false;
        /// Running children of one pod.
        children: u64 = 16, Count, Override, Lower, false;
        /// Running pods of one user.
        pods_per_user: u64 = 256, Count, Override, Lower, false;
    }
    besides {}
}

/// The path of a directory.
pub(crate) struct DirectoryForm;

impl Form for DirectoryForm {
    fn word() -> String {
        "the path of a directory".to_owned()
    }

    fn schema() -> Value {
        TextForm::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        TextForm::read(value)
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

/// A valid pod name.
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
