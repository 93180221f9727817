# The acceptance command decides, and retries are counted.
with mandate {"objective":"make it","acceptance":"test /project/made","retry":{"max":1,"base_ms":1000,"jitter":false}}
model > Made.
clock + 1 s
job: running after 1
model > Made, really.
job: failed after 1
ran Bash 2
pod is idle
