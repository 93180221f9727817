# The open call gets a synthetic result, because providers refuse calls without results.
user > read it
tools hold
model > Read {"path":"/project/none"}
person > pause
pod is paused
tools go
user > never mind
reply < run
log … invoke(user_send) tool_result(cancelled) system_item(interrupt) user_input llm_call
model > All right.
context: user read it / call Read / result … / system [The previous run… / user never mind / assistant All right.
pod is idle
