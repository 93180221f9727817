notify > the build is red
reply < ok
log: inbox invoke(notify) segment_start(initial) system_item(notification) llm_call
model > I see.
context: system [Notification] the build is red / assistant I see.
pod is idle
