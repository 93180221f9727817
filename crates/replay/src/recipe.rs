//! The recipe: what this program would tell a pod when it begins, made anew rather than read from the log.
//!
//! The real one is the default. Tests bring their own, and show that a changed one is found.

use minke_pod::Prepared;
use minke_prompts::Who;
use minke_record::ToolSpec;
use minke_tool::Place;

type SystemPrompt<'a> = Box<dyn Fn(&Who<'_>) -> String + 'a>;
type Prepare<'a> = Box<dyn Fn(&str, &str, &Place) -> Option<Result<Prepared, String>> + 'a>;

/// What a pod is made from beside its log.
pub struct Recipe<'a> {
    /// What the model is told first.
    pub system_prompt: SystemPrompt<'a>,
    /// Everything that can be offered, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// What a call with these arguments would touch; `None` for a tool that is not here. Pure, like `Tool::prepare`.
    pub prepare: Prepare<'a>,
}

impl Recipe<'static> {
    /// What this program really does.
    pub fn real() -> Recipe<'static> {
        let tools = minke_tools::builtin(&minke_tools::Kit::idle());
        let mut specs: Vec<ToolSpec> = tools.iter().map(|tool| tool.spec()).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        Recipe {
            system_prompt: Box::new(minke_prompts::system_prompt),
            tools: specs,
            prepare: Box::new(move |name, arguments, place| {
                let tool = tools.iter().find(|tool| tool.spec().name == name)?;
                let prepare = || {
                    let action = tool.prepare(arguments, place)?;
                    let own = tool.own(arguments)?;
                    Ok(Prepared { own, ..Prepared::new(tool.class(), action) })
                };
                Some(prepare().map_err(|e: minke_tool::ToolError| e.message().to_owned()))
            }),
        }
    }
}
