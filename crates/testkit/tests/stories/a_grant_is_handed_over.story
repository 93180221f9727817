person > grant
reply < refused invalid_request
person > grant call 0000
reply < ok
grants: 1
person > grant call 0000
reply < ok
grants: 1
pod is idle
