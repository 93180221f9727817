-- Changes code. What it may write is decided by whoever starts it.
local profile = require("minke.profile")
local scope = require("minke.scope")

return profile {
  slug = "coder",
  description = "changes code in small, checked steps",
  scope = scope.workspace_write(),
  worker = {
    instruction = "$minke/coder",
  },
}
