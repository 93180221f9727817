//! The recipe: the texts and tools that this program gives a pod at boot, computed rather than read from the
//! log.
//!
//! The default is the real one. Tests use their own to show that changes are detected.

use minke_pod::PreparedCall;
use minke_prompts::PromptInputs;
use minke_record::ToolSpec;
use minke_tool::ToolContext;

type PromptFn<'a> = Box<dyn Fn(&PromptInputs<'_>) -> String + 'a>;
type PrepareFn<'a> = Box<dyn Fn(&str, &str, &ToolContext) -> Option<Result<PreparedCall, String>> + 'a>;

/// The inputs of a pod besides its log.
pub struct ReplayRecipe<'a> {
    /// Composes the system prompt.
    pub system_prompt: PromptFn<'a>,
    /// All tools that can be offered, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// The action of a call with these arguments; `None` for an unknown tool. Pure, like `Tool::prepare`.
    pub prepare: PrepareFn<'a>,
}

impl ReplayRecipe<'static> {
    /// The texts and tools of this program.
    pub fn from_program() -> ReplayRecipe<'static> {
        let tools = minke_tools::builtin_tools(&minke_tools::ToolResources::inert());
        let mut specs: Vec<ToolSpec> = tools.iter().map(|tool| tool.spec()).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        ReplayRecipe {
            system_prompt: Box::new(minke_prompts::system_prompt),
            tools: specs,
            prepare: Box::new(move |name, arguments, place| {
                let tool = tools.iter().find(|tool| tool.spec().name == name)?;
                let prepare = || {
                    let action = tool.prepare(arguments, place)?;
                    let internal_call = tool.internal_call(arguments)?;
                    Ok(PreparedCall { internal_call, ..PreparedCall::new(tool.class(), action) })
                };
                Some(prepare().map_err(|e: minke_tool::ToolError| e.message().to_owned()))
            }),
        }
    }
}
