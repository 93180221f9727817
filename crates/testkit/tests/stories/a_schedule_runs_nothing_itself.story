# A job with a schedule creates other jobs: its own pod neither fires nor ends it.
with mandate {"objective":"tidy up","schedule":{"every_s":60}}
job: waiting
clock + 600 s
job: waiting
user > how is it going?
model > Well.
job: waiting
person > pause
reply < ok
job: paused
person > resume
job: waiting
person > cancel
job: cancelled
pod is idle
