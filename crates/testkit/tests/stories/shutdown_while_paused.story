user > tell me
model > begin Once
person > pause
person > shutdown
pod is gone
boot
pod is paused
person > resume
model > upon a time.
pod is idle
