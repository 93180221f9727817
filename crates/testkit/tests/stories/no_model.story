with model none
user > hello
reply < refused invalid_request
log:
pod is idle
notify > news
reply < ok
pod is idle
notes: 1
