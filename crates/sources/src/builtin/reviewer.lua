-- Reads a change and says what is wrong with it.
local profile = require("minke.profile")
local scope = require("minke.scope")

return profile {
  slug = "reviewer",
  description = "reads a change and reports what is wrong with it; writes nothing",
  scope = scope.workspace_read(),
  sandbox = { mode = "read_only" },
  worker = {
    max_turns = 200,
    instruction = "$minke/reviewer",
  },
}
