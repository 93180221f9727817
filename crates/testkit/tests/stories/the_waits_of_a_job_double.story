# Without a wait from the provider the mandate's waits apply: each twice the previous one, up to the cap.
with mandate {"objective":"make it","acceptance":"test /project/made","retry":{"max":4,"base_ms":4000,"cap_ms":10000,"jitter":false}}
model > Made.
job: waiting after 0
clock + 3 s
job: waiting after 0
clock + 1 s
job: running after 1
model > Made, really.
clock + 7 s
job: waiting after 1
clock + 1 s
job: running after 2
model > It is there.
clock + 9 s
job: waiting after 2
clock + 1 s
job: running after 3
model > Look again.
clock + 9 s
job: waiting after 3
clock + 1 s
job: running after 4
model > I give up.
job: failed after 4
ran Bash 5
pod is idle
