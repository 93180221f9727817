-- Investigates and answers.
local profile = require("minke.profile")
local scope = require("minke.scope")

return profile {
  slug = "explorer",
  description = "investigates how the code works and where it is; writes nothing",
  scope = scope.workspace_read(),
  sandbox = { mode = "read_only" },
  worker = {
    max_turns = 100,
    instruction = "$minke/explorer",
  },
}
