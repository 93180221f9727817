-- What an agent is if nobody chooses anything: the usual instruction, the model of the configuration.
local profile = require("minke.profile")

return profile {
  description = "the usual instruction, nothing else changed",
}
