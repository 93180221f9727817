-- A profile: a recipe for an agent. It computes and grants nothing; `minke profile check NAME` evaluates it.
-- The functions that there are, and every field, are described in docs/guide/profiles.md.
local profile = require("minke.profile")
local scope = require("minke.scope")
-- local models = require("minke.models")

return profile {
  slug = "NAME",
  description = "what this agent is for, in one line",

  -- What is not said here comes from this profile.
  extends = "builtin:default",

  -- The model; without it the one of the configuration.
  -- model = models.catalog("PROVIDER/MODEL"),

  -- scope.workspace_read() for an agent that only reads.
  scope = scope.workspace_write(),

  worker = {
    max_turns = 200,
    -- How the agent is to work, in place of what the profile below says.
    -- instruction = [[ … ]],
  },
}
