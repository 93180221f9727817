# The open call is closed with a synthetic result, because providers refuse orphan calls.
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
