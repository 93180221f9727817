user > note it
tools hold
model > Note {"line":"milk"}
crash
tools go
user > never mind
reply < run
log … invoke(user_send) tool_result system_item(interrupt) user_input llm_call
ran Note 1
model > All right.
pod is idle
