with idle_exit 60
clock + 59 s
pod is idle
clock + 2 s
pod is gone
boot
clients 1
clock + 120 s
pod is idle
clients 0
clock + 61 s
pod is gone
