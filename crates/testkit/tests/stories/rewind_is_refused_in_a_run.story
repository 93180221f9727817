user > one
model > First.
user > two
person > rewind one
reply < refused already_running
model > Second.
person > rewind one
reply < input one
context:
crash
context:
pod is idle
