# After a restart a wait continues for the remaining time.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > WaitPods {"names":["a"],"timeout_s":100}
clock + 60 s
crash
person > resume
activity: child
clock + 30 s
activity: child
clock + 20 s
log … tool_result(done)
model > It takes long.
pod is idle
