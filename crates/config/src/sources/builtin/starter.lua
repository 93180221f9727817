-- A profile: a recipe for an agent. It computes and grants nothing; `minke profile check NAME` evaluates it.
-- All functions and fields are documented in docs/guide/profiles.md.
local profile = require("minke.profile")
local scope = require("minke.scope")
-- local models = require("minke.models")

return profile {
  slug = "NAME",
  description = "the purpose of this agent, in one line",

  -- Values that this profile does not set come from here.
  extends = "builtin:default",

  -- Defaults to the model of the configuration.
  -- model = models.catalog("PROVIDER/MODEL"),

  -- scope.workspace_read() for an agent that only reads.
  scope = scope.workspace_write(),

  worker = {
    max_turns = 200,
    -- Replaces the instruction of the extended profile.
    -- instruction = [[ … ]],
  },
}
