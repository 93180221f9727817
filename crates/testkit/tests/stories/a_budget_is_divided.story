# A child's part is taken out of the parent's; what it did not spend comes back, and is taken again when it is woken.
kills differ: a request that was cut off counts as what it had reserved
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
