kills differ: a kill counts as one of the three crashes
with parent
with task build it
model > begin I beg
crash
log … run_completed(interrupted) invoke(resume) llm_call
pod is running
crash
pod is running
crash
pod is running
crash
pod is paused
alert < not resumed again
person > resume
model > Built.
pod is idle
