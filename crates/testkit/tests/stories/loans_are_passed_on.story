# Every ancestor receives a report of a loan below it.
with parent
with task divide
model > SpawnPod {"name":"a","write":"/project/a"}
told: scope_sub_delegated
pod a > lends b
told: scope_sub_delegated, scope_sub_delegated
model > Done.
told: scope_sub_delegated, scope_sub_delegated, turn_ended(finished)
pod is idle
