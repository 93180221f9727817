# A wait ends after its timeout or with a message.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > WaitPods {"names":["a"],"timeout_s":60}
clock + 61 s
log … tool_result(done) llm_call
model > WaitPods {"names":["a"],"timeout_s":600}
activity: child
user steer > stop waiting
log … queued_input(steer) tool_result(done)
model > I stop.
pod is idle
