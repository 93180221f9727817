# The first error is returned, and nothing has happened.
with depth 1
user > divide the work
model > SpawnPod {"name":"story","write":"project"}
log … tool_result(invalid)
model > SpawnPod {"name":"a"}
model > SpawnPod {"name":"a","write":"/project/../x"}
model > SpawnPod {"name":"a","write":"/elsewhere"}
model > SpawnPod {"name":"a","write":"/project/a","clone":1}
model > SendToPod {"name":"a"}
model > WaitPods {"names":["a"]}
model > None of that works.
children: none
pod is idle
