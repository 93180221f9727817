-- Plans; other agents do the work.
local profile = require("minke.profile")
local scope = require("minke.scope")

return profile {
  slug = "planner",
  description = "turns a task into a plan for another agent; changes nothing",
  scope = scope.workspace_read(),
  sandbox = { mode = "read_only" },
  permissions = { posture = "plan" },
  worker = {
    max_turns = 150,
    instruction = "$minke/planner",
  },
}
