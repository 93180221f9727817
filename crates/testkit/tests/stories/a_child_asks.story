# A child's ask ends a wait; a parent that may not answer it gets an error.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > WaitPods {"names":["a"],"until":"all"}
pod a > asks may I
log … inbox tool_result(done)
model > AnswerPod {"name":"a","ask":1}
log … tool_result(refused)
model > A person must answer.
pod is idle
