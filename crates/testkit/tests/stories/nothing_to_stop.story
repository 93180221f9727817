person > pause
reply < refused not_running
person > cancel
reply < refused not_running
person > resume
reply < refused not_paused
person > answer
reply < refused not_found
log:
pod is idle
