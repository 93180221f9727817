# A pod with the permission answers asks about actions that it could do without asking.
with may_answer
with posture ask
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > WaitPods {"names":["a"],"until":"ask"}
pod a > asks may I
model > AnswerPod {"name":"a","ask":7}
log … tool_result(invalid)
model > AnswerPod {"name":"a","ask":1}
log … tool_dispatch(AnswerPod) tool_result(done)
pod a > asks Sh make
model > AnswerPod {"name":"a","ask":2}
log … tool_result(refused)
model > The rest is for a person.
pod is idle
