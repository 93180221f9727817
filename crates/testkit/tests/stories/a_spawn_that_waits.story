# SpawnPod with `wait` ends with the child's run and returns its last text.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a","wait":1}
activity: child
pod a > says It is 42.
pod a > ends
log … inbox read_to tool_result(done) llm_call
notes: 0
model > 42.
pod is idle
