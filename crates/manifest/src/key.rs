//! Keys: the table of what can be declared, one row each.
//!
//! Here: what a row says, and the macros `section!` and `keys!` by which each section writes its rows once. From a row come
//! the field, its default, how layers merge, what a value may be, the sentence for people and the JSON Schema; nothing is
//! written twice. Elsewhere: the rows (one file a section), the kinds of values (`form`), layers (`partial`, `resolve`).
//! Invariant: every row is a field of the manifest that reads back what was set (`every_key_reaches_its_field`).

use serde_json::Value;

use crate::form::{Places, Refused};

/// One key of the manifest.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Dotted: `worker.max_turns`.
    pub path: &'static str,
    /// For people, one line or more.
    pub doc: &'static str,
    pub merge: Merge,
    pub workspace: Workspace,
    /// Whether a profile may set it.
    pub profile: bool,
    /// What a value is, in words.
    pub word: fn() -> String,
    pub(crate) read: fn(&Value) -> Result<Value, Refused>,
    pub(crate) schema: fn() -> Value,
    pub(crate) places: Places,
}

/// What becomes of a value when a higher layer says another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The higher one counts.
    Override,
    /// Lists: both count, the lower layer's first.
    Concatenate,
    /// Maps: the higher one counts, entry by entry.
    PerKey,
}

/// What the file of a workspace may do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// It is left out, with an alert.
    Nothing,
    Set,
    /// A number that is not above what counts without it.
    Lower,
    /// `false`, never `true`.
    Off,
    /// Entries beside the others.
    Add,
    /// Rules that ask or deny, beside the others.
    Stricter,
}

impl Key {
    /// The sentence for people, on one line.
    pub fn sentence(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The section that the key is in: `worker` of `worker.max_turns`.
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }
}

/// The name of a field, or the other name that it has in files.
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

/// A section: its struct, its defaults and its rows. Below its keys it may have fields that are no keys (`besides`):
/// sections inside of it, and what only the program itself sets.
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
