-- Changes code. The caller decides which paths it may write.
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
