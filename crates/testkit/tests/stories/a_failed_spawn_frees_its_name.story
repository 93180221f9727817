# A failed start of a child is undone, and its name is free again.
user > divide the work
model > SpawnPod {"name":"unlucky","write":"/project/a"}
log … tool_dispatch(SpawnPod) child(unlucky) child_end(failed_to_start) tool_result(failed)
children: none
model > SpawnPod {"name":"unlucky","write":"/project/a"}
log … child(unlucky) child_end(failed_to_start) tool_result(failed)
model > Then I do it myself.
model > Put {"path":"/project/a/x","content":"1"}
ran Put 1
model > Done.
pod is idle
