with idle_exit 60
owner gone
clock + 2 s
pod is idle
clock + 2 s
pod is gone
boot
clients 1
owner gone
clock + 120 s
pod is idle
clients 0
clock + 4 s
pod is gone
