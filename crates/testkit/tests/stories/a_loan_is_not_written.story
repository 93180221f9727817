# The parent cannot write a lent scope; after the child has ended it can.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > Put {"path":"/project/a/x","content":"1"}
log … tool_result(refused)
ran Put 0
model > SpawnPod {"name":"b","write":"/project/a/deep"}
log … tool_result(invalid)
children: a lives
model > SpawnPod {"name":"a","write":"/project/b"}
log … tool_result(invalid)
model > StopPod {"name":"a"}
log … tool_dispatch(StopPod) child_end(stopped) tool_result(done)
children: a stopped
model > Put {"path":"/project/a/x","content":"1"}
log … tool_result(done)
ran Put 1
model > Done.
pod is idle
