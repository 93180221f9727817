user > tell me
model > begin Once
person > pause
user steer > rather this
reply < run
model > This.
context: user tell me / assistant Once / system [The previous… / user rather this / assistant This.
pod is idle
