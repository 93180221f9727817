-- Reviews a change and reports problems.
local profile = require("minke.profile")
local scope = require("minke.scope")

return profile {
  slug = "reviewer",
  description = "reviews a change and reports problems; writes nothing",
  scope = scope.workspace_read(),
  sandbox = { mode = "read_only" },
  worker = {
    max_turns = 200,
    instruction = "$minke/reviewer",
  },
}
