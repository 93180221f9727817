user > tell me
model > begin Once
person > pause
person > pause
reply < ok
pod is paused
person > resume
person > resume
reply < refused already_running
model > upon a time.
pod is idle
