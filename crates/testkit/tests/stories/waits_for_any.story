# A wait uses no requests, ends with the event, and its report is not shown again.
kills differ: a report that arrived while no process ran is a note, not the end of a wait
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > SpawnPod {"name":"b","write":"/project/b"}
model > WaitPods {"names":["a","b"],"until":"any"}
activity: child
waits on child
pod b > ends
log … inbox tool_result(done) llm_call
notes: 0
model > WaitPods {"names":["a","b"],"until":"all"}
activity: child
pod a > fails it broke
notes: 0
model > Both have ended.
pod is idle
