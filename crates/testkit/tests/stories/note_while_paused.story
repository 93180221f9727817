user > tell me
model > begin Once
person > pause
notify > hurry
reply < ok
pod is paused
notes: 1
person > resume
notes: 0
model > upon a time.
pod is idle
