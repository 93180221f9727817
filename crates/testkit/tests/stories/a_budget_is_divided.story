# A child's budget is part of its parent's; the unspent part returns and is reserved again when the child restarts.
kills differ: an interrupted request counts with its reservation
with budget {"tokens":20000}
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a","tokens":9000}
model > SpawnPod {"name":"b","write":"/project/b","tokens":19000}
log … tool_result(invalid)
model > I wait.
left: 10970
pod a > spends 1000
pod a > sleeps
left: 18970
user > wake it
model > SendToPod {"name":"a"}
children: a lives
model > It works.
left: 10940
pod a > spends 500
pod a > stops
left: 18440
pod is idle
