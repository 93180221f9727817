-- The default profile: the default instruction and the configured model.
local profile = require("minke.profile")

return profile {
  description = "the default instruction, no other changes",
}
