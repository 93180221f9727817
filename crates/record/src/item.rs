//! Items: the model-visible history; and input segments, the parts of a user input.
//!
//! Provider-specific ids are excluded on purpose: a session can continue on another provider.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ids::CallId;
use crate::string_enum::words;
use crate::text::Text;

words! {
    /// The author of a message.
    pub enum Role { User = "user", Assistant = "assistant", System = "system" }
}

/// One piece of model-visible history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Item {
    Message {
        role: Role,
        content: Vec<Content>,
    },
    Reasoning {
        text: Text,
        #[serde(default)]
        summary: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted: Option<Text>,
        /// The `provider/model` that signed or encrypted it: other models cannot read it and do not get it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// `arguments` is the JSON text as the model wrote it.
    ToolCall {
        call_id: CallId,
        name: String,
        arguments: Text,
    },
    ToolResult {
        call_id: CallId,
        summary: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Text>,
        #[serde(default)]
        is_error: bool,
        /// The full output, if `content` is only a part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
        /// Images in the output.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageBlob>,
    },
    /// A kind of a later version; never sent to a model.
    #[serde(other)]
    Unknown,
}

/// An image in a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageBlob {
    pub blob: String,
    pub media_type: String,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    Text {
        text: Text,
    },
    Image {
        blob: String,
        media_type: String,
    },
    Refusal {
        text: Text,
    },
    #[serde(other)]
    Unknown,
}

impl Item {
    pub fn message(role: Role, text: impl Into<Text>) -> Item {
        Item::Message { role, content: vec![Content::Text { text: text.into() }] }
    }

    pub fn user_message(text: impl Into<Text>) -> Item {
        Item::message(Role::User, text)
    }

    pub fn assistant_message(text: impl Into<Text>) -> Item {
        Item::message(Role::Assistant, text)
    }

    /// Whether some text of the item is in a blob.
    pub fn is_spilled(&self) -> bool {
        let there = |text: &Text| text.inline().is_none();
        match self {
            Item::Message { content, .. } => content.iter().any(|part| match part {
                Content::Text { text } | Content::Refusal { text } => there(text),
                Content::Image { .. } | Content::Unknown => false,
            }),
            Item::Reasoning { text, signature, encrypted, .. } => {
                there(text) || signature.as_ref().is_some_and(there) || encrypted.as_ref().is_some_and(there)
            }
            Item::ToolCall { arguments, .. } => there(arguments),
            Item::ToolResult { content, .. } => content.as_ref().is_some_and(there),
            Item::Unknown => false,
        }
    }

    /// Visits every text of the item.
    pub fn visit_texts_mut(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        match self {
            Item::Message { content, .. } => {
                for part in content {
                    match part {
                        Content::Text { text } | Content::Refusal { text } => visit(text),
                        Content::Image { .. } | Content::Unknown => {}
                    }
                }
            }
            Item::Reasoning { text, signature, encrypted, .. } => {
                visit(text);
                signature.iter_mut().for_each(&mut *visit);
                encrypted.iter_mut().for_each(&mut *visit);
            }
            Item::ToolCall { arguments, .. } => visit(arguments),
            Item::ToolResult { content, .. } => content.iter_mut().for_each(visit),
            Item::Unknown => {}
        }
    }
}

/// A part of a user input: an *input segment*, never called just a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputSegment {
    Text {
        content: Text,
    },
    Paste {
        id: u64,
        chars: u64,
        lines: u64,
        content: Text,
    },
    FileRef {
        path: String,
    },
    Image {
        source: ImageSource,
        media_type: String,
    },
    KnowledgeRef {
        slug: String,
    },
    WorkflowInvoke {
        slug: String,
    },
    SkillRef {
        name: String,
    },
    /// A kind of a later version, kept as it came.
    Unknown(Value),
}

/// The location of an image's bytes. `Data` is base64 and is replaced by a blob before it is logged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    Path(String),
    Data(String),
    Blob(String),
}

/// The serialized form of the known kinds; `InputSegment` adds the unknown ones.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", schemars(rename = "InputSegment"))]
enum KnownSegment {
    Text {
        content: Text,
    },
    Paste {
        #[serde(default)]
        id: u64,
        #[serde(default)]
        chars: u64,
        #[serde(default)]
        lines: u64,
        content: Text,
    },
    FileRef {
        path: String,
    },
    Image {
        #[serde(flatten)]
        source: ImageSource,
        media_type: String,
    },
    KnowledgeRef {
        slug: String,
    },
    WorkflowInvoke {
        slug: String,
    },
    SkillRef {
        name: String,
    },
}

const KNOWN_SEGMENTS: [&str; 7] =
    ["text", "paste", "file_ref", "image", "knowledge_ref", "workflow_invoke", "skill_ref"];

impl InputSegment {
    pub fn from_text(content: impl Into<Text>) -> InputSegment {
        InputSegment::Text { content: content.into() }
    }

    pub fn visit_texts_mut(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        match self {
            InputSegment::Text { content } | InputSegment::Paste { content, .. } => visit(content),
            InputSegment::FileRef { .. }
            | InputSegment::Image { .. }
            | InputSegment::KnowledgeRef { .. }
            | InputSegment::WorkflowInvoke { .. }
            | InputSegment::SkillRef { .. }
            | InputSegment::Unknown(_) => {}
        }
    }

    /// Whether the segment refers to a file that must be read before the model can use it.
    pub fn has_reference(&self) -> bool {
        match self {
            InputSegment::FileRef { .. }
            | InputSegment::KnowledgeRef { .. }
            | InputSegment::WorkflowInvoke { .. }
            | InputSegment::SkillRef { .. } => true,
            InputSegment::Text { .. }
            | InputSegment::Paste { .. }
            | InputSegment::Image { .. }
            | InputSegment::Unknown(_) => false,
        }
    }

    /// The segment as the model gets it.
    pub fn to_content(&self) -> Content {
        let text = match self {
            InputSegment::Text { content } | InputSegment::Paste { content, .. } => content.clone(),
            InputSegment::FileRef { path } => format!("@{path}").into(),
            InputSegment::Image { source: ImageSource::Blob(blob), media_type } => {
                return Content::Image { blob: blob.clone(), media_type: media_type.clone() };
            }
            InputSegment::Image { source: ImageSource::Path(path), .. } => format!("[image {path}]").into(),
            InputSegment::Image { source: ImageSource::Data(_), .. } => "[image]".into(),
            InputSegment::KnowledgeRef { slug } => format!("#{slug}").into(),
            InputSegment::WorkflowInvoke { slug } => format!("/{slug}").into(),
            InputSegment::SkillRef { name } => format!("/{name}").into(),
            InputSegment::Unknown(_) => "[unknown input segment]".into(),
        };
        Content::Text { text }
    }
}

/// Whether references of an input are unread: nothing is attached, or an image is not a blob yet.
pub fn has_unread_references(segments: &[InputSegment], attached: &[SystemItem]) -> bool {
    let outside = |segment: &InputSegment| match segment {
        InputSegment::Image { source, .. } => !matches!(source, ImageSource::Blob(_)),
        segment => attached.is_empty() && segment.has_reference(),
    };
    segments.iter().any(outside)
}

/// The input as one user message.
pub fn flatten_input(segments: &[InputSegment]) -> Item {
    Item::Message { role: Role::User, content: segments.iter().map(InputSegment::to_content).collect() }
}

impl Serialize for InputSegment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = match self.clone() {
            InputSegment::Unknown(value) => return value.serialize(serializer),
            InputSegment::Text { content } => KnownSegment::Text { content },
            InputSegment::Paste { id, chars, lines, content } => {
                KnownSegment::Paste { id, chars, lines, content }
            }
            InputSegment::FileRef { path } => KnownSegment::FileRef { path },
            InputSegment::Image { source, media_type } => KnownSegment::Image { source, media_type },
            InputSegment::KnowledgeRef { slug } => KnownSegment::KnowledgeRef { slug },
            InputSegment::WorkflowInvoke { slug } => KnownSegment::WorkflowInvoke { slug },
            InputSegment::SkillRef { name } => KnownSegment::SkillRef { name },
        };
        known.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for InputSegment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let Some(kind) = value.get("kind").and_then(Value::as_str) else {
            return Err(serde::de::Error::custom("an input segment is an object with a `kind`"));
        };
        if !KNOWN_SEGMENTS.contains(&kind) {
            return Ok(InputSegment::Unknown(value));
        }
        let kind = kind.to_owned();
        let known = serde_json::from_value(value)
            .map_err(|e| serde::de::Error::custom(format!("input segment `{kind}`: {e}")))?;
        Ok(match known {
            KnownSegment::Text { content } => InputSegment::Text { content },
            KnownSegment::Paste { id, chars, lines, content } => {
                InputSegment::Paste { id, chars, lines, content }
            }
            KnownSegment::FileRef { path } => InputSegment::FileRef { path },
            KnownSegment::Image { source, media_type } => InputSegment::Image { source, media_type },
            KnownSegment::KnowledgeRef { slug } => InputSegment::KnowledgeRef { slug },
            KnownSegment::WorkflowInvoke { slug } => InputSegment::WorkflowInvoke { slug },
            KnownSegment::SkillRef { name } => InputSegment::SkillRef { name },
        })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for InputSegment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "InputSegment".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        KnownSegment::json_schema(generator)
    }
}

words! {
    /// Why a system item is in the context.
    pub enum SystemKind {
        Notification = "notification",
        PodEvent = "pod_event",
        FileAttachment = "file_attachment",
        Knowledge = "knowledge",
        Workflow = "workflow",
        Skill = "skill",
        TaskReminder = "task_reminder",
        Interrupt = "interrupt",
        Continue = "continue",
    }
}

/// The typed cause and the exact text that the model gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SystemItem {
    pub kind: SystemKind,
    /// The event behind a `pod_event`, the path behind a `file_attachment` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Value>,
    pub body: Text,
}

impl SystemItem {
    /// The item as the model gets it. Each provider decides how to represent it in the middle of a history.
    pub fn to_item(&self) -> Item {
        Item::message(Role::System, self.body.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_input_segments_are_kept_as_they_came() {
        let line = r#"{"kind":"hologram","x":[1,2]}"#;
        let segment: InputSegment = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&segment).unwrap(), line);
        assert_eq!(segment.to_content(), Content::Text { text: "[unknown input segment]".into() });
    }

    #[test]
    fn an_image_has_one_source() {
        let line = r#"{"kind":"image","path":"a.png","media_type":"image/png"}"#;
        let segment: InputSegment = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&segment).unwrap(), line);
        assert!(serde_json::from_str::<InputSegment>(r#"{"kind":"image","media_type":"x"}"#).is_err());
    }

    #[test]
    fn an_item_of_a_later_version_is_unknown() {
        let item: Item = serde_json::from_str(r#"{"kind":"song","notes":[1]}"#).unwrap();
        assert_eq!(item, Item::Unknown);
    }
}
