person > undo
reply < refused not_found
person > yield
reply < ok
log:
pod is idle
