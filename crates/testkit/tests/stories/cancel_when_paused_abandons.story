kills differ: a kill before the cancel leaves the partial text
user > tell me
model > begin Once upon
person > pause
person > cancel
reply < ok
log … run_completed(paused) state(abandoned)
pod is idle
person > resume
reply < refused not_paused
