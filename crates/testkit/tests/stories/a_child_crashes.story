# A crashed child causes a note in its parent's inbox; a message restarts it.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > I wait.
pod a > spends 100
pod a > crashes
log … child_end(crashed) inbox invoke(pod_event)
children: a crashed
model > SendToPod {"name":"a","message":"go on"}
log … tool_dispatch(SendToPod) child(a) tool_result(done)
children: a lives
model > It lives again.
pod a > ends
model > Good.
pod is idle
