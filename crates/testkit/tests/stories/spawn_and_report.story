# A child is spawned and works concurrently; its report wakes its parent once.
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a","task":"do a"}
log … tool_dispatch(SpawnPod) child(a) tool_result(done) llm_call
children: a lives
model > It works.
pod is idle
pod a > says I did it.
pod a > ends
log … inbox invoke(pod_event) system_item(pod_event) llm_call
pod is running
model > ReadPodOutput {"name":"a"}
log … tool_dispatch(ReadPodOutput) read_to tool_result(done)
model > Well done.
pod is idle
context: user divide the work / call SpawnPod / result pod `a` is started / assistant It works. / system [Report] pod `a` has ended its run (finished) / call ReadPodOutput / result new text / assistant Well done.
notes: 0
