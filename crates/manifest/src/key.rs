//! Keys: the table of configuration keys, one row per key.
//!
//! The macros `section!` and `keys!` define each row once. The row provides the field, its default, how
//! layers merge, the allowed values, the description and the JSON Schema. Elsewhere: the rows (one file per
//! section), the kinds of values (`form`), layers (`partial`, `resolve`).
//! Invariant: every row is a field of the manifest that reads back the value that was set
//! (`every_key_reaches_its_field`).

use serde_json::Value;

use crate::form::{Places, Refused};

/// One key of the manifest.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Dotted: `worker.max_turns`.
    pub path: &'static str,
    /// A description for people.
    pub doc: &'static str,
    pub merge: Merge,
    pub workspace: Workspace,
    /// Whether a profile may set it.
    pub profile: bool,
    /// Describes the expected value.
    pub word: fn() -> String,
    pub(crate) read: fn(&Value) -> Result<Value, Refused>,
    pub(crate) schema: fn() -> Value,
    pub(crate) places: Places,
}

/// How values of several layers merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The higher layer overrides.
    Override,
    /// Lists are concatenated, the lower layer first.
    Concatenate,
    /// Maps merge by entry; the higher layer overrides.
    PerKey,
}

/// How the file of a workspace may change a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// Not at all: the value is ignored with an alert.
    Nothing,
    Set,
    /// Only to a number that is not higher than without the file.
    Lower,
    /// Only to `false`.
    Off,
    /// Entries in addition to the others.
    Add,
    /// Rules that ask or deny, in addition to the others.
    Stricter,
}

impl Key {
    /// Returns the description on one line.
    pub fn doc_sentence(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the section of the key: `worker` of `worker.max_turns`.
    pub fn section_name(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }
}

/// The name of a field, or its different name in files.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $rename:literal) => {
        $rename
    };
}

/// Rows of a section: `field (= "name in files")?: Form, Merge, Workspace, profile;`
macro_rules! keys {
    ($path:literal { $( $(#[doc = $doc:literal])+ $field:ident $(= $rename:literal)? : $form:ty,
        $merge:ident, $workspace:ident, $profile:literal; )* }) => {
        &[ $( $crate::key::Key {
            path: concat!($path, ".", $crate::key::name!($field $($rename)?)),
            doc: concat!($($doc),+),
            merge: $crate::key::Merge::$merge,
            workspace: $crate::key::Workspace::$workspace,
            profile: $profile,
            word: <$form as $crate::form::Form>::word,
            read: <$form as $crate::form::Form>::read,
            schema: <$form as $crate::form::Form>::schema,
            places: <$form as $crate::form::Form>::places,
        } ),* ]
    };
}

/// A section: its struct, its defaults and its rows. `besides` lists fields that are not keys: nested
/// sections and values that only the program sets.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident at $path:literal {
            $( $(#[doc = $doc:literal])+ $field:ident $(= $rename:literal)? : $type:ty = $default:expr, $form:ty,
                $merge:ident, $workspace:ident, $profile:literal; )*
        }
        besides {
            $( $(#[$bmeta:meta])* $besides:ident : $btype:ty; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                #[serde(skip_serializing_if = "crate::form::Field::is_absent")]
                $(#[serde(rename = $rename)])?
                pub $field: $type,
            )*
            $( $(#[$bmeta])* pub $besides: $btype, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )* $( $besides: Default::default(), )* }
            }
        }

        impl $name {
            pub(crate) const KEYS: &'static [$crate::key::Key] = $crate::key::keys!($path {
                $( $(#[doc = $doc])+ $field $(= $rename)? : $form, $merge, $workspace, $profile; )*
            });
        }
    };
}

pub(crate) use {keys, name, section};
